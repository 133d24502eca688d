package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// Dovecote leaves trailing zeros of a time out where its own code formats it.
// Such a text is behind the full form of the same second, so that comparing texts
// can be late by less than a second, and is never early; and a claim is at any
// moment either its owner's or to be taken, never both.
func TestShortTimesAreNeverEarly(t *testing.T) {
	for _, tc := range []struct {
		short string
		at    time.Time // what it says
	}{
		{"2026-05-01T12:00:05Z", noon.Add(5 * time.Second)},
		{"2026-05-01T12:00:05.5Z", noon.Add(5500 * time.Millisecond)},
		{"2026-05-01T12:00:05.12Z", noon.Add(5120 * time.Millisecond)},
	} {
		for _, after := range []time.Duration{-time.Second, -time.Millisecond, 0, time.Millisecond, 400 * time.Millisecond, time.Second} {
			now := tc.at.Add(after)
			if got := claimable(t, now, `UPDATE dovecote_deliveries SET available_at = ?`, tc.short); got && after < 0 || !got && after >= time.Second {
				t.Errorf("due at %s: claimable %v at %v", tc.short, got, now)
			}
			expired := claimable(t, now, `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = x'000102030405060708090A0B0C0D0E0F', claimed_by = 'x', claim_expires_at = ?`, tc.short)
			if expired && after < 0 || !expired && after >= time.Second {
				t.Errorf("expires at %s: claimable %v at %v", tc.short, expired, now)
			}
			if owned := acknowledges(t, now, tc.short); owned == expired {
				t.Errorf("expires at %s: claimable %v and its owner's %v at %v", tc.short, expired, owned, now)
			}
			if gone := prunes(t, now, tc.short); gone && after <= 0 || !gone && after > time.Second {
				t.Errorf("delivered at %s: pruned %v at %v", tc.short, gone, now)
			}
		}
	}
}

// spoilt is a store at now, with an event that the statement has changed.
func spoilt(t *testing.T, now time.Time, query string, args ...any) *outbox.Handle {
	t.Helper()
	s := outboxtest.NewSpoiled(t, func(o *outbox.Options) { o.Now = func() time.Time { return now } })
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, event("acme", "1"))
	must(t, db, query, args...)
	if findings, err := s.AllTenants().Check(t.Context(), 0); err != nil || len(findings) != 0 {
		t.Errorf("%v: %+v, %v", args, findings, err)
	}
	return s.AllTenants()
}

func claimable(t *testing.T, now time.Time, query, short string) bool {
	t.Helper()
	return len(claim(t, spoilt(t, now, query, short), 1)) == 1
}

func acknowledges(t *testing.T, now time.Time, short string) bool {
	t.Helper()
	h := spoilt(t, now, `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = ?, claimed_by = 'x', claim_expires_at = ?`, make([]byte, 16), short)
	done, err := h.Settle(t.Context(), []outbox.Settlement{{Row: 1, Action: outbox.Ack}})
	if err != nil || done[0].Err != nil && !errors.Is(done[0].Err, outbox.ErrLostClaim) {
		t.Fatal(done, err)
	}
	return done[0].Err == nil
}

func prunes(t *testing.T, now time.Time, short string) bool {
	t.Helper()
	h := spoilt(t, now.Add(time.Hour), `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = ?`, short)
	pruned, err := h.Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return pruned.Delivered == 1
}

func TestShortTimesOfEventsAreRead(t *testing.T) {
	h := spoilt(t, noon, `UPDATE dovecote_events SET occurred_at = '2026-05-01T12:00:05.5Z'`)
	want := noon.Add(5500 * time.Millisecond)
	page, err := h.Page(t.Context(), 0, 10)
	if err != nil || page[0].DecodeErr != nil || !page[0].Event.Time.Equal(want) {
		t.Errorf("page: %+v, %v", page, err)
	}
	list, err := h.List(t.Context(), outbox.Filter{State: outbox.Pending}, 10)
	if err != nil || list[0].DecodeErr != nil || !list[0].Event.Time.Equal(want) {
		t.Errorf("list: %+v, %v", list, err)
	}
	entry, err := h.Get(t.Context(), page[0].Row)
	if err != nil || entry.DecodeErr != nil || !entry.Event.Time.Equal(want) {
		t.Errorf("get: %+v, %v", entry, err)
	}
}
