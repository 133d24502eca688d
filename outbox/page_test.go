package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func entryRows(entries []outbox.Entry) []int64 {
	rows := []int64{}
	for _, e := range entries {
		rows = append(rows, e.Row)
	}
	return rows
}

func TestPageGoesByRowID(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 5)...)
	outboxtest.Enqueue(t, db, events("zeta", 5)...)
	claim(t, s.AllTenants(), 2)
	must(t, db, `DELETE FROM dovecote_deliveries WHERE event_row_id = 7`)
	for _, tc := range []struct {
		name   string
		handle *outbox.Handle
		after  int64
		limit  int
		want   []int64
	}{
		{"from the start", s.AllTenants(), 0, 3, []int64{1, 2, 3}},
		{"from before the start", s.AllTenants(), -5, 2, []int64{1, 2}},
		{"from a cursor", s.AllTenants(), 3, 1000, []int64{4, 5, 6, 7, 8, 9, 10}},
		{"at the end", s.AllTenants(), 10, 10, []int64{}},
		{"one tenant", tenant(t, s, "zeta"), 2, 4, []int64{6, 7, 8, 9}},
		{"no such tenant", tenant(t, s, "none"), 0, 4, []int64{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			page, err := tc.handle.Page(t.Context(), tc.after, tc.limit)
			if err != nil || !slices.Equal(entryRows(page), tc.want) {
				t.Errorf("%v, %v", entryRows(page), err)
			}
			for _, e := range page {
				if e.Orphan != (e.Row == 7) || e.DecodeErr != nil {
					t.Errorf("row %d: orphan %t, %v", e.Row, e.Orphan, e.DecodeErr)
				}
				if claimed := e.Delivery.State == outbox.InClaim; claimed != (e.Row <= 2) {
					t.Errorf("row %d: %s", e.Row, e.Delivery.State)
				}
			}
		})
	}
	for _, limit := range []int{-1, 0, 1001} {
		var bad *outbox.InvalidLimitError
		if _, err := s.AllTenants().Page(t.Context(), 0, limit); !errors.As(err, &bad) || bad.Min != 1 || bad.Max != 1000 {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// Statistics of tables that had one row make SQLite join them by going through
// all of one; pages are read in another way then, and show the same.
func TestPagesAndStatsWithStaleStatistics(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, full())
	must(t, db, `ANALYZE`)
	outboxtest.Enqueue(t, db, events("acme", 30)...)
	quarantine(t, db, noon, `event_row_id % 3 = 0`)
	look := func(s *outbox.Store) string {
		page, err := s.AllTenants().Page(t.Context(), 1, 20)
		if err != nil || len(page) != 20 {
			t.Fatalf("%d, %v", len(page), err)
		}
		st, err := s.AllTenants().Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%+v %+v %v", page, st.Streams, st.QuarantineByCode)
	}
	stale := look(outboxtest.OpenStore(t, s.Path()))
	must(t, db, `ANALYZE`)
	if fresh := look(outboxtest.OpenStore(t, s.Path())); stale != fresh {
		t.Errorf("%s\nfresh %s", stale, fresh)
	}
}

func TestGetShowsWhatIsStored(t *testing.T) {
	c := &clock{noon}
	s := outboxtest.NewStore(t, c.option)
	db := outboxtest.Producer(t, s.Path())
	row := outboxtest.Enqueue(t, db, full())[0]
	must(t, db, `UPDATE dovecote_events SET enqueued_at = '2026-01-01T00:00:00.250000Z'`)
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.250000Z', attempts = 3,
		state = 'quarantined', quarantined_at = '2026-01-02T00:00:00.000000Z', quarantine_reason = 'too_large: 9 bytes',
		last_failure_code = 'timeout', last_failure_detail = 'no answer'`)
	e, err := s.AllTenants().Get(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	want := outbox.Delivery{
		State: outbox.Quarantined, AvailableAt: stamp("2026-01-01T00:00:00.25Z"), Attempts: 3, QuarantinedAt: stamp("2026-01-02T00:00:00Z"),
		QuarantineReason: "too_large: 9 bytes", FailureCode: "timeout", FailureDetail: "no answer",
	}
	if e.Delivery != want || !e.EnqueuedAt.Equal(stamp("2026-01-01T00:00:00.25Z")) || e.Event.ID != "full" {
		t.Errorf("%+v", e)
	}
	for name, get := range map[string]func() (outbox.Entry, error){
		"no such row":    func() (outbox.Entry, error) { return s.AllTenants().Get(t.Context(), row+1) },
		"another tenant": func() (outbox.Entry, error) { return tenant(t, s, "zeta").Get(t.Context(), row) },
	} {
		if _, err := get(); !errors.Is(err, outbox.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListFilters(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	for i, name := range []string{"acme", "acme", "acme", "acme", "zeta", "zeta", "zeta", "zeta"} {
		e := event(name, fmt.Sprint(i))
		if i%2 == 1 {
			e.Stream = "bills"
		}
		outboxtest.Enqueue(t, db, e)
	}
	quarantine := func(row int, reason string) {
		must(t, db, `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = '2026-01-01T00:00:00.000000Z', quarantine_reason = ?,
			last_failure_code = 'timeout', last_failure_detail = 'd' WHERE event_row_id = ?`, reason, row)
	}
	quarantine(1, "too_large: 9 bytes: limit 8")
	quarantine(2, "too_large: ")
	quarantine(3, "Not a code: text")
	quarantine(4, "operator: because")
	quarantine(5, "no colon")
	must(t, db, `UPDATE dovecote_deliveries SET last_failure_code = 'timeout', last_failure_detail = 'd' WHERE event_row_id = 6`)
	must(t, db, `DELETE FROM dovecote_deliveries WHERE event_row_id = 8`)
	all, acme := s.AllTenants(), tenant(t, s, "acme")
	for _, tc := range []struct {
		name   string
		handle *outbox.Handle
		filter outbox.Filter
		want   []int64
	}{
		{"nothing asked", all, outbox.Filter{}, []int64{1, 2, 3, 4, 5, 6, 7, 8}},
		{"after", all, outbox.Filter{After: 6}, []int64{7, 8}},
		{"state", all, outbox.Filter{State: outbox.Pending}, []int64{6, 7}},
		{"stream, orphans too", all, outbox.Filter{Stream: "bills"}, []int64{2, 4, 6, 8}},
		{"tenant", all, outbox.Filter{Tenant: "zeta"}, []int64{5, 6, 7, 8}},
		{"tenant of a handle", acme, outbox.Filter{}, []int64{1, 2, 3, 4}},
		{"another tenant than the handle's", acme, outbox.Filter{Tenant: "zeta"}, []int64{}},
		{"quarantine code", all, outbox.Filter{Code: "too_large"}, []int64{1, 2}},
		{"quarantine code in a stream", all, outbox.Filter{Code: "too_large", Stream: "bills"}, []int64{2}},
		{"reasons without a code", all, outbox.Filter{Code: "other"}, []int64{3, 5}},
		{"operator's", all, outbox.Filter{Code: "operator", State: outbox.Quarantined}, []int64{4}},
		{"failure code of rows that are not quarantined", all, outbox.Filter{Code: "timeout"}, []int64{6}},
		{"a quotation mark", all, outbox.Filter{Code: "x' OR '1' = '1"}, []int64{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := tc.handle.List(t.Context(), tc.filter, 100)
			if err != nil || !slices.Equal(entryRows(list), tc.want) {
				t.Errorf("list %v, %v", entryRows(list), err)
			}
			rows, err := tc.handle.SelectRows(t.Context(), tc.filter, 100)
			want := slices.DeleteFunc(slices.Clone(tc.want), func(r int64) bool { return r == 8 })
			if err != nil || !slices.Equal(append([]int64{}, rows...), want) {
				t.Errorf("select %v, %v", rows, err)
			}
		})
	}
	if list, err := all.List(t.Context(), outbox.Filter{}, 3); err != nil || len(list) != 3 {
		t.Errorf("limit: %v, %v", entryRows(list), err)
	}
	if _, err := all.List(t.Context(), outbox.Filter{State: "sent"}, 3); err == nil {
		t.Error("a state that is none passes")
	}
	if _, err := all.SelectRows(t.Context(), outbox.Filter{State: "sent"}, 3); err == nil {
		t.Error("a state that is none passes")
	}
	for _, limit := range []int{0, 1001} {
		if _, err := all.List(t.Context(), outbox.Filter{}, limit); !errors.As(err, new(*outbox.InvalidLimitError)) {
			t.Errorf("%v", err)
		}
		if _, err := all.SelectRows(t.Context(), outbox.Filter{}, limit); !errors.As(err, new(*outbox.InvalidLimitError)) {
			t.Errorf("%v", err)
		}
	}
}

// The code is read in Go and in SQL; both read it alike.
func TestQuarantineCode(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	for i, tc := range []struct{ reason, want string }{
		{"too_large: 9 bytes", "too_large"},
		{"a1: b: c", "a1"},
		{"x: ", "x"},
		{"operator: why", "operator"},
		{"too_large:9 bytes", "other"},
		{"Too: large", "other"},
		{"größe: x", "other"},
		{"too large: x", "other"},
		{": x", "other"},
		{"", "other"},
		{"text", "other"},
	} {
		if got := outbox.QuarantineCode(tc.reason); got != tc.want {
			t.Errorf("%q: %s", tc.reason, got)
		}
		row := outboxtest.Enqueue(t, db, event("acme", fmt.Sprint(i)))[0]
		must(t, db, `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = available_at, quarantine_reason = ? WHERE event_row_id = ?`, tc.reason, row)
		rows, err := s.AllTenants().SelectRows(t.Context(), outbox.Filter{Code: tc.want, After: row - 1}, 10)
		if err != nil || !slices.Equal(rows, []int64{row}) {
			t.Errorf("%q in SQL: %v, %v", tc.reason, rows, err)
		}
	}
}
