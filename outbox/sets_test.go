package outbox_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// One statement settles many rows, and still each has its own outcome.
func TestManyAcknowledgementsKeepTheirOwnOutcomes(t *testing.T) {
	ctx := context.Background()
	var illegal *outbox.TransitionError
	isIllegal := func(err error) bool { return errors.As(err, &illegal) }
	is := func(target error) func(error) bool {
		return func(err error) bool { return errors.Is(err, target) }
	}
	for _, c := range []struct {
		name  string
		spoil func(batch []outbox.Settlement)
		want  map[int]func(error) bool
	}{
		{"all are in order", func([]outbox.Settlement) {}, nil},
		{"a token of another claim", func(b []outbox.Settlement) { b[3].Token[0]++ }, map[int]func(error) bool{3: is(outbox.ErrLostClaim)}},
		{"two tokens are exchanged", func(b []outbox.Settlement) { b[3].Token, b[4].Token = b[4].Token, b[3].Token },
			map[int]func(error) bool{3: is(outbox.ErrLostClaim), 4: is(outbox.ErrLostClaim)}},
		{"a row twice", func(b []outbox.Settlement) { b[7] = b[6] }, map[int]func(error) bool{7: isIllegal}},
		{"no such row", func(b []outbox.Settlement) { b[0].Row = 1 << 40 }, map[int]func(error) bool{0: is(outbox.ErrNotFound)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := outboxtest.NewStore(t)
			outboxtest.Enqueue(t, outboxtest.Producer(t, s.Path()), events("acme", 40)...)
			h := s.AllTenants()
			var batch []outbox.Settlement
			for _, row := range claim(t, h, 40) {
				batch = append(batch, outbox.Settlement{Row: row.Row, Token: row.Token, Action: outbox.Ack})
			}
			batch[20].Action, batch[20].Delay = outbox.Release, time.Minute // two runs of acknowledgements
			c.spoil(batch)
			settled, err := h.Settle(ctx, batch)
			if err != nil {
				t.Fatal(err)
			}
			for i, done := range settled {
				if done.Row != batch[i].Row {
					t.Errorf("outcome %d is of row %d, want %d", i, done.Row, batch[i].Row)
				}
				if want := c.want[i]; want == nil && done.Err != nil || want != nil && !want(done.Err) {
					t.Errorf("settlement %d: %v", i, done.Err)
				}
			}
		})
	}
}

// A claim that expired before its acknowledgement keeps nobody else's from being
// written.
func TestAnExpiredClaimAmongManyIsLostAlone(t *testing.T) {
	ctx := context.Background()
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 20)...)
	h := s.AllTenants()
	var batch []outbox.Settlement
	for _, row := range claim(t, h, 20) {
		batch = append(batch, outbox.Settlement{Row: row.Row, Token: row.Token, Action: outbox.Ack})
	}
	must(t, db, `UPDATE dovecote_deliveries SET claim_expires_at = '2020-01-01T00:00:00.000000Z' WHERE event_row_id = ?`, batch[5].Row)
	settled, err := h.Settle(ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, done := range settled {
		if lost := errors.Is(done.Err, outbox.ErrLostClaim); lost != (i == 5) || done.Err != nil && !lost {
			t.Errorf("settlement %d: %v", i, done.Err)
		}
	}
}

// A drain must not let the write-ahead log grow: it is copied and begun anew.
func TestTheLogStaysBoundedWithoutAnyOtherWriter(t *testing.T) {
	ctx := context.Background()
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 4000)...)
	must(t, db, `PRAGMA wal_checkpoint(TRUNCATE)`)
	h := s.AllTenants()
	for range 20 {
		var batch []outbox.Settlement
		for _, row := range claim(t, h, 1000) {
			batch = append(batch, outbox.Settlement{Row: row.Row, Token: row.Token, Action: outbox.Release})
		}
		if _, err := h.Settle(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(s.Path() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 6<<20 {
		t.Errorf("the log has %d bytes after 40 transactions", info.Size())
	}
}
