package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"modernc.org/sqlite"
)

var stateTestToken = Token([]byte("0123456789abcdef"))

// tryMove tries a move on row 1, which holds stateTestToken if it is claimed, and
// reports whether it was made.
func tryMove(t *testing.T, s *Store, m move) bool {
	t.Helper()
	h, ctx := s.AllTenants(), t.Context()
	settle := func(a Action) bool {
		got, err := h.Settle(ctx, []Settlement{{Row: 1, Token: stateTestToken, Action: a, Delay: time.Second, Reason: "r"}})
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Err == nil
	}
	switch m {
	case moveClaim, moveReclaim:
		got, err := h.Claim(ctx, "w", time.Minute, 1)
		if err != nil {
			t.Fatal(err)
		}
		return len(got) == 1
	case moveSetAside, moveExpel:
		got, err := h.SetAside(ctx, []BadRow{{Row: 1, Code: "undecodable"}})
		if err != nil {
			t.Fatal(err)
		}
		return len(got) == 1
	case moveRequeue:
		got, err := h.Requeue(ctx, []int64{1})
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Err == nil
	case moveDismiss:
		got, err := h.QuarantinePending(ctx, []int64{1}, "r")
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Err == nil
	case moveFinalize:
		return tryFinalize(t, s)
	}
	return settle(map[move]Action{moveAck: Ack, moveRetry: Retry, moveRelease: Release, moveRenew: Renew, moveQuarantine: Quarantine}[m])
}

func tryFinalize(t *testing.T, s *Store) bool {
	c, err := sqlite.NewConnector(fileURI(s.file, "mode=rw"))
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	defer db.Close()
	tx, err := Begin(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	err = Finalize(t.Context(), tx, "acme", 1, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	return err == nil
}

func stateOf(t *testing.T, s *Store) (state State) {
	t.Helper()
	err := s.read(t.Context(), "test", func(ctx context.Context, x *txn) error {
		return x.queryRow(ctx, `SELECT state FROM dovecote_deliveries`).Scan(&state)
	})
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// Each move is tried from each state: it is made where the table says so, leads
// where the table says, and changes nothing elsewhere.
func TestMovesAreTheLegalOnes(t *testing.T) {
	for m, legal := range moves {
		for _, from := range states {
			t.Run(fmt.Sprintf("%s from %s", m, from), func(t *testing.T) {
				now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				s := open(t, Options{Now: func() time.Time { return now }})
				addRows(t, s, from, 1)
				execWriter(t, s, `UPDATE dovecote_events SET enqueued_at = '2026-01-01T00:00:00.000000Z'`)
				expired := m == moveReclaim || m == moveExpel || m == moveClaim || m == moveSetAside
				if from == InClaim {
					expires := map[bool]string{true: "2025-12-31T23:59:59.000000Z", false: "2026-01-01T00:01:00.000000Z"}[expired]
					execWriter(t, s, `UPDATE dovecote_deliveries SET claim_token = ?, claim_expires_at = ?`, stateTestToken[:], expires)
				}
				made := tryMove(t, s, m)
				want := legal.from == from || expired && from == InClaim || expired && from == Pending
				if made != want {
					t.Fatalf("made %v, want %v", made, want)
				}
				to := from
				if made {
					to = legal.to
				}
				if got := stateOf(t, s); got != to {
					t.Errorf("is %s then, want %s", got, to)
				}
			})
		}
	}
}

// The schema's CHECK lets a row be in each of the states and in no other.
func TestStatesAreTheSchemas(t *testing.T) {
	s := open(t, Options{})
	for _, state := range states {
		addRows(t, s, state, 1)
	}
	for _, other := range []string{"", "Pending", "failed", "dead"} {
		_, err := s.write(t.Context(), "test", func(ctx context.Context, x *txn) error {
			_, err := x.exec(ctx, `UPDATE dovecote_deliveries SET state = ? WHERE state = 'pending'`, other)
			return err
		})
		if !isConstraint(err) {
			t.Errorf("state %q: %v", other, err)
		}
	}
	var reached []State
	for _, m := range moves {
		reached = append(reached, m.from, m.to)
	}
	slices.Sort(reached)
	all := slices.Sorted(slices.Values(states))
	if got := slices.Compact(reached); !slices.Equal(got, all) {
		t.Errorf("the moves know %v, the schema %v", got, all)
	}
}
