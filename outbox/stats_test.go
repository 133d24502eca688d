package outbox_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// foreignStore is a store on a file as the other library installs it.
func foreignStore(tb testing.TB, adjust ...func(*outbox.Options)) *outbox.Store {
	tb.Helper()
	path := scriptFile(tb, readFile(tb, "testdata/foreign_v2.sql"))
	return outboxtest.OpenStore(tb, path, adjust...)
}

func TestStatsCountByStateAndStream(t *testing.T) {
	for name, open := range map[string]func(testing.TB, ...func(*outbox.Options)) *outbox.Store{
		"own file": outboxtest.NewStore, "file of the other library": foreignStore,
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{noon}
			s := open(t, c.option)
			db := outboxtest.Producer(t, s.Path())
			for i, name := range []string{"acme", "acme", "acme", "acme", "acme", "zeta", "zeta", "zeta"} {
				e := event(name, fmt.Sprint(i))
				e.Stream = []string{"orders", "bills"}[i%2]
				outboxtest.Enqueue(t, db, e)
			}
			must(t, db, `UPDATE dovecote_events SET enqueued_at = printf('2026-01-0%dT00:00:00.000000Z', row_id)`)
			must(t, db, `UPDATE dovecote_deliveries SET available_at = printf('2026-02-0%dT00:00:00.000000Z', 9 - event_row_id)`)
			claimed := `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = ? WHERE event_row_id = ?`
			must(t, db, claimed, textAt(noon), 3)
			must(t, db, claimed, textAt(noon.Add(24*time.Hour)), 4)
			deliver(t, db, noon, `event_row_id = 1`)
			quarantine(t, db, noon, `event_row_id IN (5, 8)`)
			must(t, db, `UPDATE dovecote_deliveries SET quarantine_reason = 'because' WHERE event_row_id = 8`)
			// Pending 2, 6, 7; claimed 3, 4; delivered 1; quarantined 5, 8.
			all := outbox.Stats{
				Now: noon, Pending: 3, Claimed: 2, Delivered: 1, Quarantined: 2, Expired: 1,
				OldestPending: stamp("2026-01-02T00:00:00Z"), NextDue: stamp("2026-02-02T00:00:00Z"),
				Streams: []outbox.StreamStats{
					{Stream: "bills", Pending: 2, Claimed: 1, Quarantined: 1, OldestPending: stamp("2026-01-02T00:00:00Z")},
					{Stream: "orders", Pending: 1, Claimed: 1, Quarantined: 1, OldestPending: stamp("2026-01-07T00:00:00Z")},
				},
				QuarantineByCode: map[string]int64{"too_large": 1, "other": 1},
			}
			zeta := outbox.Stats{
				Now: noon, Pending: 2, Quarantined: 1,
				OldestPending: stamp("2026-01-06T00:00:00Z"), NextDue: stamp("2026-02-02T00:00:00Z"),
				Streams: []outbox.StreamStats{
					{Stream: "bills", Pending: 1, Quarantined: 1, OldestPending: stamp("2026-01-06T00:00:00Z")},
					{Stream: "orders", Pending: 1, OldestPending: stamp("2026-01-07T00:00:00Z")},
				},
				QuarantineByCode: map[string]int64{"other": 1},
			}
			sameStats(t, s.AllTenants(), all)
			sameStats(t, tenant(t, s, "zeta"), zeta)
			sameStats(t, tenant(t, s, "none"), outbox.Stats{Now: noon})
		})
	}
}

// sameStats compares Stats, and Backlog, which is part of it.
func sameStats(t *testing.T, h *outbox.Handle, want outbox.Stats) {
	t.Helper()
	got, err := h.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Streams, want.Streams) || !maps.Equal(got.QuarantineByCode, want.QuarantineByCode) || brief(got) != brief(want) {
		t.Errorf("stats  %+v\nwant   %+v", got, want)
	}
	want.Delivered, want.Orphans = -1, -1
	got, err = h.Backlog(t.Context())
	if err != nil || !slices.Equal(got.Streams, want.Streams) || !maps.Equal(got.QuarantineByCode, want.QuarantineByCode) || brief(got) != brief(want) {
		t.Errorf("backlog %+v\nwant    %+v (%v)", got, want, err)
	}
}

func brief(s outbox.Stats) string {
	s.Streams, s.QuarantineByCode = nil, nil
	return fmt.Sprintf("%+v", s)
}

func TestStatsNameLeasesThatNoRelayGives(t *testing.T) {
	c := &clock{noon}
	s := outboxtest.NewSpoiled(t, c.option)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 3)...)
	claimed := `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = ? WHERE event_row_id = ?`
	must(t, db, claimed, textAt(noon.Add(24*time.Hour)), 1)
	must(t, db, claimed, textAt(noon.Add(24*time.Hour+time.Millisecond)), 2)
	must(t, db, claimed, "2036-01-01T00:00:00.000000Z", 3)
	if st, err := s.AllTenants().Stats(t.Context()); err != nil || st.FarLeases != 2 || st.Expired != 0 || st.Claimed != 3 {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestStatsCountOrphans(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 5)...)
	outboxtest.Enqueue(t, db, events("zeta", 5)...)
	must(t, db, `DELETE FROM dovecote_deliveries WHERE event_row_id IN (1, 2, 9)`)
	for h, want := range map[*outbox.Handle]int64{s.AllTenants(): 3, tenant(t, s, "zeta"): 1} {
		if st, err := h.Stats(t.Context()); err != nil || st.Orphans != want {
			t.Errorf("%+v, %v", st, err)
		}
	}
}
