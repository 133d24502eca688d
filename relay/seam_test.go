package relay

import (
	"context"
	"fmt"
	"sync"

	"github.com/outbox-relay/relay/outbox"
)

// seam is an Outbox whose operations a test can fail or delay.
type seam struct {
	Outbox
	mu       sync.Mutex
	exchange func(ctx context.Context, batch []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error)
	same     error
	turns    int
	claims   int // turns that would claim
}

// fail makes every exchange fail with err, nil for none.
func (s *seam) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchange = nil
	if err != nil {
		s.exchange = func(context.Context, []outbox.Settlement, outbox.ClaimRequest) (outbox.Exchanged, error) {
			return outbox.Exchanged{}, err
		}
	}
}

// hang makes every exchange wait until its context ends.
func (s *seam) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchange = func(ctx context.Context, _ []outbox.Settlement, _ outbox.ClaimRequest) (outbox.Exchanged, error) {
		<-ctx.Done()
		return outbox.Exchanged{}, ctx.Err()
	}
}

func (s *seam) Exchange(ctx context.Context, batch []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error) {
	s.mu.Lock()
	fn := s.exchange
	s.turns++
	if claim.Limit > 0 {
		s.claims++
	}
	s.mu.Unlock()
	if fn != nil {
		return fn(ctx, batch, claim)
	}
	return s.Outbox.Exchange(ctx, batch, claim)
}

func (s *seam) SameFile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

func (s *seam) counts() (turns, claims int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns, s.claims
}

// codeError is an error of SQLite.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("SQLite error %d", int(e)) }
func (e codeError) Code() int     { return int(e) }
