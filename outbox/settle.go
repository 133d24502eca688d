package outbox

import (
	"context"
	"time"
)

// Action is what becomes of a claimed row.
type Action uint8

const (
	Ack Action = iota + 1
	Retry
	Release
	Renew
	Quarantine
)

// Failure is recorded by a retry. Both are cut to their bounds (128 and 2,048
// bytes) at a rune boundary.
type Failure struct{ Code, Detail string }

// Settlement settles one claim by its token.
type Settlement struct {
	Row     int64
	Token   Token
	Action  Action
	Delay   time.Duration // Retry: backoff, Release: delay, 0..30 days; Renew: lease; whole milliseconds
	Failure Failure       // Retry only
	Reason  string        // Quarantine only, cut to 2,048 bytes
}

// Settled is one settlement's own outcome.
type Settled struct {
	Row     int64
	Err     error     // nil, ErrNotFound, *TransitionError or ErrLostClaim
	Expires time.Time // Renew: the new expiry
}

// Settle settles many rows in one transaction, each by its own token with its
// own outcome, in order. One lost claim never undoes its neighbours.
func (h *Handle) Settle(ctx context.Context, batch []Settlement) ([]Settled, error) { panic("todo") }
