package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// clock is a database clock that a test moves.
type clock struct{ now time.Time }

func (c *clock) option(o *outbox.Options) { o.Now = func() time.Time { return c.now } }

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// claimedStore has n rows claimed for a minute at noon.
func claimedStore(t *testing.T, n int) (*outbox.Store, *sql.DB, *clock, []outbox.Claimed) {
	c := &clock{noon}
	s := outboxtest.NewSpoiled(t, c.option)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", n)...)
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z'`)
	return s, db, c, claim(t, s.AllTenants(), n)
}

func settlement(c outbox.Claimed, a outbox.Action) outbox.Settlement {
	return outbox.Settlement{Row: c.Row, Token: c.Token, Action: a, Delay: 90 * time.Second,
		Failure: outbox.Failure{Code: "timeout", Detail: "no answer"}, Reason: "too_large: 9 bytes"}
}

var actions = []outbox.Action{outbox.Ack, outbox.Retry, outbox.Release, outbox.Renew, outbox.Quarantine}

func TestEachSettlementWritesItsOwnColumns(t *testing.T) {
	const token = "0123456789abcdef"
	for _, tc := range []struct {
		name   string
		action outbox.Action
		want   string // state, available_at, attempts, token, by, expires, code, detail, delivered, quarantined, reason
	}{
		{"ack", outbox.Ack, "delivered|2026-01-01T00:00:00.000000Z|1|<nil>|<nil>|<nil>|old|older|2026-05-01T12:00:30.000000Z|<nil>|<nil>|"},
		{"retry", outbox.Retry, "pending|2026-05-01T12:02:00.000000Z|1|<nil>|<nil>|<nil>|timeout|no answer|<nil>|<nil>|<nil>|"},
		{"release keeps the previous failure", outbox.Release, "pending|2026-05-01T12:02:00.000000Z|1|<nil>|<nil>|<nil>|old|older|<nil>|<nil>|<nil>|"},
		{"renew", outbox.Renew, "claimed|2026-01-01T00:00:00.000000Z|1|" + fmt.Sprintf("%X", token) + "|worker|2026-05-01T12:02:00.000000Z|old|older|<nil>|<nil>|<nil>|"},
		{"quarantine", outbox.Quarantine, "quarantined|2026-01-01T00:00:00.000000Z|1|<nil>|<nil>|<nil>|old|older|<nil>|2026-05-01T12:00:30.000000Z|too_large: 9 bytes|"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, db, c, claimed := claimedStore(t, 1)
			must(t, db, `UPDATE dovecote_deliveries SET last_failure_code = 'old', last_failure_detail = 'older', claim_token = ?`, []byte(token))
			claimed[0].Token = outbox.Token([]byte(token))
			c.now = noon.Add(30 * time.Second)
			settled, err := s.AllTenants().Settle(t.Context(), []outbox.Settlement{settlement(claimed[0], tc.action)})
			if err != nil || len(settled) != 1 || settled[0].Err != nil || settled[0].Row != claimed[0].Row {
				t.Fatalf("%+v, %v", settled, err)
			}
			want := time.Time{}
			if tc.action == outbox.Renew {
				want = c.now.Add(90 * time.Second)
			}
			if !settled[0].Expires.Equal(want) {
				t.Errorf("expires %v, want %v", settled[0].Expires, want)
			}
			if got := strings.TrimSpace(dump(t, db)); got != "1|"+tc.want {
				t.Errorf("stored\n%s\nwant\n1|%s", got, tc.want)
			}
		})
	}
}

func TestSettlementsAreFenced(t *testing.T) {
	wrong := outbox.Token{1}
	for _, tc := range []struct {
		name  string
		spoil func(db *sql.DB, c *clock, s *outbox.Settlement)
		want  error // nil: *TransitionError
		state outbox.State
	}{
		{"no such row", func(db *sql.DB, _ *clock, s *outbox.Settlement) { s.Row = 99 }, outbox.ErrNotFound, ""},
		{"no such row, and the wrong token", func(db *sql.DB, _ *clock, s *outbox.Settlement) { s.Row, s.Token = 99, wrong }, outbox.ErrNotFound, ""},
		{"delivered", func(db *sql.DB, _ *clock, s *outbox.Settlement) {
			must(t, db, `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '2026-05-01T12:00:00.000000Z', claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL WHERE event_row_id = 1`)
		}, nil, outbox.Delivered},
		{"pending, token cleared", func(db *sql.DB, _ *clock, s *outbox.Settlement) {
			must(t, db, `UPDATE dovecote_deliveries SET state = 'pending', claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL WHERE event_row_id = 1`)
		}, nil, outbox.Pending},
		{"quarantined, and the wrong token", func(db *sql.DB, _ *clock, s *outbox.Settlement) {
			s.Token = wrong
			must(t, db, `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = '2026-05-01T12:00:00.000000Z', quarantine_reason = 'y', claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL WHERE event_row_id = 1`)
		}, nil, outbox.Quarantined},
		{"superseded token", func(db *sql.DB, _ *clock, s *outbox.Settlement) {
			must(t, db, `UPDATE dovecote_deliveries SET claim_token = randomblob(16) WHERE event_row_id = 1`)
		}, outbox.ErrLostClaim, ""},
		{"the token as text", func(db *sql.DB, _ *clock, s *outbox.Settlement) {
			s.Token = outbox.Token([]byte("0123456789abcdef"))
			must(t, db, `UPDATE dovecote_deliveries SET claim_token = '0123456789abcdef' WHERE event_row_id = 1`)
		}, outbox.ErrLostClaim, ""},
		{"expired at this very moment", func(_ *sql.DB, c *clock, _ *outbox.Settlement) { c.now = noon.Add(time.Minute) }, outbox.ErrLostClaim, ""},
		{"expired long ago", func(_ *sql.DB, c *clock, _ *outbox.Settlement) { c.now = noon.Add(time.Hour) }, outbox.ErrLostClaim, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, action := range actions {
				s, db, c, claimed := claimedStore(t, 3)
				first := settlement(claimed[0], action)
				tc.spoil(db, c, &first)
				before := dump(t, db)
				settled, err := s.AllTenants().Settle(t.Context(), []outbox.Settlement{first})
				if err != nil || len(settled) != 1 {
					t.Fatal(settled, err)
				}
				var transition *outbox.TransitionError
				switch got := settled[0].Err; {
				case tc.want != nil && got != tc.want:
					t.Errorf("action %d: %v, want %v", action, got, tc.want)
				case tc.want == nil && (!errors.As(got, &transition) || transition.State != tc.state || transition.Row != 1):
					t.Errorf("action %d: %v, want a transition from %s", action, got, tc.state)
				}
				if after := dump(t, db); after != before {
					t.Errorf("action %d changed:\n%s%s", action, before, after)
				}
			}
		})
	}
}

func TestALostClaimLeavesItsNeighboursAlone(t *testing.T) {
	s, db, _, claimed := claimedStore(t, 5)
	must(t, db, `UPDATE dovecote_deliveries SET claim_token = randomblob(16) WHERE event_row_id = 3`)
	var batch []outbox.Settlement
	for i, c := range claimed {
		batch = append(batch, settlement(c, actions[i]))
	}
	batch = append(batch, settlement(claimed[0], outbox.Ack)) // settled already, in this batch
	settled, err := s.AllTenants().Settle(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range settled {
		ok := got.Err == nil
		switch i {
		case 2:
			ok = got.Err == outbox.ErrLostClaim
		case 5:
			ok = errors.As(got.Err, new(*outbox.TransitionError))
		}
		if !ok || got.Row != batch[i].Row {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if n := count(t, db, `SELECT count(DISTINCT state) FROM dovecote_deliveries`); n != 4 {
		t.Errorf("%d states:\n%s", n, dump(t, db))
	}
}

func TestRenewCannotRevive(t *testing.T) {
	s, _, c, claimed := claimedStore(t, 1)
	h := s.AllTenants()
	renew := []outbox.Settlement{settlement(claimed[0], outbox.Renew)}
	c.now = noon.Add(time.Minute - time.Millisecond)
	if got, err := h.Settle(t.Context(), renew); err != nil || got[0].Err != nil {
		t.Fatalf("in the last millisecond: %v, %v", got, err)
	}
	c.now = c.now.Add(90 * time.Second)
	if got, err := h.Settle(t.Context(), renew); err != nil || got[0].Err != outbox.ErrLostClaim {
		t.Fatalf("expired: %v, %v", got, err)
	}
	if got := claim(t, h, 1); len(got) != 1 || got[0].Token == claimed[0].Token || got[0].Attempts != 2 {
		t.Fatalf("%+v", got)
	}
	if got, err := h.Settle(t.Context(), renew); err != nil || got[0].Err != outbox.ErrLostClaim {
		t.Fatalf("claimed again: %v, %v", got, err)
	}
}

func TestSettleValidatesBeforeItWrites(t *testing.T) {
	s, db, _, claimed := claimedStore(t, 2)
	before := dump(t, db)
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name   string
		action outbox.Action
		delay  time.Duration
	}{
		{"negative backoff", outbox.Retry, -time.Millisecond},
		{"backoff above 30 days", outbox.Retry, 30*day + time.Millisecond},
		{"backoff finer than a millisecond", outbox.Retry, time.Microsecond},
		{"negative delay", outbox.Release, -1},
		{"delay above 30 days", outbox.Release, 31 * day},
		{"no lease", outbox.Renew, 0},
		{"lease above 24 hours", outbox.Renew, day + time.Millisecond},
		{"lease finer than a millisecond", outbox.Renew, time.Second + 1},
	} {
		bad := settlement(claimed[1], tc.action)
		bad.Delay = tc.delay
		batch := []outbox.Settlement{settlement(claimed[0], outbox.Ack), bad}
		var invalid *outbox.InvalidDurationError
		if _, err := s.AllTenants().Settle(t.Context(), batch); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if _, err := s.AllTenants().Exchange(t.Context(), batch, outbox.ClaimRequest{}); !errors.As(err, &invalid) {
			t.Errorf("%s, exchange: %v", tc.name, err)
		}
	}
	var limit *outbox.InvalidLimitError
	if _, err := s.AllTenants().Settle(t.Context(), make([]outbox.Settlement, 4097)); !errors.As(err, &limit) {
		t.Error(err)
	}
	if _, err := s.AllTenants().Settle(t.Context(), []outbox.Settlement{{Row: 1}}); err == nil {
		t.Error("an action of zero")
	}
	if after := dump(t, db); after != before {
		t.Errorf("changed:\n%s%s", before, after)
	}
	if got, err := s.AllTenants().Settle(t.Context(), nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func TestTextsAreCutToTheirColumns(t *testing.T) {
	s, db, _, claimed := claimedStore(t, 2)
	batch := []outbox.Settlement{settlement(claimed[0], outbox.Retry), settlement(claimed[1], outbox.Quarantine)}
	batch[0].Failure = outbox.Failure{Code: strings.Repeat("é", 100), Detail: "a\x00b\xff" + strings.Repeat("日", 1000)}
	batch[1].Reason = strings.Repeat("x", 2047) + "é"
	settled, err := s.AllTenants().Settle(t.Context(), batch)
	if err != nil || settled[0].Err != nil || settled[1].Err != nil {
		t.Fatal(settled, err)
	}
	var code, detail, reason string
	if err := db.QueryRow(`SELECT last_failure_code, last_failure_detail FROM dovecote_deliveries WHERE event_row_id = 1`).Scan(&code, &detail); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(`SELECT quarantine_reason FROM dovecote_deliveries WHERE event_row_id = 2`).Scan(&reason); err != nil {
		t.Fatal(err)
	}
	if code != strings.Repeat("é", 64) || len(reason) != 2047 || len(detail) > 2048 || len(detail) < 2040 || !utf8.ValidString(detail) || !strings.HasPrefix(detail, "ab") {
		t.Errorf("code %d, detail %d, reason %d bytes", len(code), len(detail), len(reason))
	}
}

func TestExchangeSettlesThenClaims(t *testing.T) {
	s, db, c, claimed := claimedStore(t, 4)
	outboxtest.Enqueue(t, db, event("acme", "new"))
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z' WHERE event_row_id = 5`)
	c.now = noon.Add(time.Second)
	batch := []outbox.Settlement{settlement(claimed[0], outbox.Ack), settlement(claimed[1], outbox.Release), settlement(claimed[2], outbox.Retry)}
	batch[1].Delay = 0
	x, err := s.AllTenants().Exchange(t.Context(), batch, outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 10})
	if err != nil || x.ClaimErr != nil || len(x.Settled) != 3 || x.Held <= 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	if got := rowsOf(x.Claimed); !slices.Equal(got, []int64{2, 5}) {
		t.Errorf("claimed %v: the released row is due at once, the retried one is not", got)
	}
	x, err = s.AllTenants().Exchange(t.Context(), []outbox.Settlement{settlement(claimed[3], outbox.Ack)}, outbox.ClaimRequest{})
	if err != nil || len(x.Settled) != 1 || x.Claimed != nil {
		t.Errorf("without a claim: %+v, %v", x, err)
	}
	if x, err = s.AllTenants().Exchange(t.Context(), nil, outbox.ClaimRequest{}); err != nil || x.Held != 0 {
		t.Errorf("with nothing to do: %+v, %v", x, err)
	}
}

func TestAClaimThatFailsKeepsTheSettlements(t *testing.T) {
	request := outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 10}
	for _, tc := range []struct {
		name  string
		spoil func(db *sql.DB, f *outboxtest.Faults, e *entropy)
		check func(error) bool
	}{
		{"a bad row", func(db *sql.DB, _ *outboxtest.Faults, _ *entropy) {
			must(t, db, `UPDATE dovecote_events SET extensions = 'x' WHERE row_id = 3`)
		}, func(err error) bool { return errors.As(err, new(*outbox.BadRowsError)) }},
		{"no entropy", func(_ *sql.DB, _ *outboxtest.Faults, e *entropy) { e.data = nil },
			func(err error) bool { return errors.Is(err, outbox.ErrEntropyUnavailable) }},
		{"a failing statement", func(_ *sql.DB, f *outboxtest.Faults, _ *entropy) {
			f.Before(func(query string, run func(string) error) {
				if strings.Contains(query, "SET state = 'claimed'") {
					f.FailAt(1, outboxtest.IOError) // the next update
				}
			})
		}, func(err error) bool {
			return outbox.FaultOf(err) == outbox.FaultIO && errors.As(err, new(*outbox.SQLError))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var faults outboxtest.Faults
			source := &entropy{[]byte(strings.Repeat("0123456789abcdef", 1))}
			s := outboxtest.NewSpoiled(t, func(o *outbox.Options) { o.Driver, o.Entropy = faults.Connector, source })
			db := outboxtest.Producer(t, s.Path())
			outboxtest.Enqueue(t, db, events("acme", 4)...)
			first := claim(t, s.AllTenants(), 1)
			source.data = []byte("123456789abcdef023456789abcdef013456789abcdef012")
			tc.spoil(db, &faults, source)
			x, err := s.AllTenants().Exchange(t.Context(), []outbox.Settlement{settlement(first[0], outbox.Ack)}, request)
			faults.Before(nil)
			faults.Disarm()
			if err != nil || !tc.check(x.ClaimErr) || x.Claimed != nil || len(x.Settled) != 1 || x.Settled[0].Err != nil {
				t.Fatalf("%+v, %v", x, err)
			}
			if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE state = 'delivered' AND event_row_id = ?`, first[0].Row); n != 1 {
				t.Error("the settlement was lost")
			}
			if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE state = 'pending' AND attempts = 0`); n != 3 {
				t.Errorf("the claim left traces:\n%s", dump(t, db))
			}
		})
	}
}

func TestSettleOfACancelledContextChangesNothing(t *testing.T) {
	s, db, _, claimed := claimedStore(t, 3)
	before := dump(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var batch []outbox.Settlement
	for _, c := range claimed {
		batch = append(batch, settlement(c, outbox.Ack))
	}
	if _, err := s.AllTenants().Settle(ctx, batch); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if after := dump(t, db); after != before {
		t.Errorf("changed:\n%s%s", before, after)
	}
	if got, err := s.AllTenants().Settle(t.Context(), batch); err != nil || got[2].Err != nil {
		t.Error(got, err)
	}
}
