package outbox_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// fourStates has rows 1 to 4, pending, claimed, delivered and quarantined, and row 5 of
// another tenant, quarantined; all at noon.
func fourStates(t *testing.T) (*outbox.Store, *clock, func() string) {
	t.Helper()
	c := &clock{noon}
	s := outboxtest.NewStore(t, c.option)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 4)...)
	outboxtest.Enqueue(t, db, event("zeta", "5"))
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z'`)
	must(t, db, `UPDATE dovecote_deliveries SET state = 'claimed', attempts = 1, claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = '2026-05-01T12:00:30.000000Z' WHERE event_row_id = 2`)
	must(t, db, `UPDATE dovecote_deliveries SET state = 'delivered', attempts = 1, delivered_at = '2026-04-30T12:00:00.000000Z' WHERE event_row_id = 3`)
	must(t, db, `UPDATE dovecote_deliveries SET state = 'quarantined', attempts = 1, quarantined_at = '2026-04-30T12:00:00.000000Z', quarantine_reason = 'too_large: 9 bytes' WHERE event_row_id >= 4`)
	return s, c, func() string { return dump(t, db) }
}

func rowErrors(results []outbox.RowResult) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%d:%v ", r.Row, r.Err)
	}
	return b.String()
}

func TestRequeueTakesQuarantinedRowsAlone(t *testing.T) {
	s, _, rows := fourStates(t)
	before := strings.Split(rows(), "\n")
	results, err := tenant(t, s, "acme").Requeue(t.Context(), []int64{5, 4, 3, 2, 1, 99, 4})
	if err != nil {
		t.Fatal(err)
	}
	want := "5:no such row 4:<nil> 3:row 3 is delivered 2:row 2 is claimed 1:row 1 is pending 99:no such row 4:row 4 is pending "
	if got := rowErrors(results); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !errors.Is(results[0].Err, outbox.ErrNotFound) || !errors.As(results[2].Err, new(*outbox.TransitionError)) {
		t.Error("outcomes have no types")
	}
	after := strings.Split(rows(), "\n")
	for i, line := range after {
		if i == 3 {
			line = strings.Replace(line, "4|pending|2026-05-01T12:00:00.000000Z|0|<nil>|<nil>|<nil>|requeued|too_large: 9 bytes|<nil>|<nil>|<nil>|", before[3], 1)
		}
		if line != before[i] {
			t.Errorf("was %s\nis  %s", before[i], after[i])
		}
	}
}

func TestRequeueIsVisibleAndKeepsTheLastFailure(t *testing.T) {
	s, _, _ := fourStates(t)
	db := outboxtest.Producer(t, s.Path())
	must(t, db, `UPDATE dovecote_deliveries SET last_failure_code = 'publish_timeout', last_failure_detail = 'no answer' WHERE event_row_id = 5`)
	h := s.AllTenants()
	if r, err := h.Requeue(t.Context(), []int64{4, 5}); err != nil || rowErrors(r) != "4:<nil> 5:<nil> " {
		t.Fatal(rowErrors(r), err)
	}
	for row, failure := range map[int64]string{4: "requeued: too_large: 9 bytes", 5: "publish_timeout: no answer"} {
		e, err := h.Get(t.Context(), row)
		if d := e.Delivery; err != nil || !d.Requeued() || d.FailureCode+": "+d.FailureDetail != failure {
			t.Errorf("row %d: %+v, %v", row, e.Delivery, err)
		}
	}
	if e, _ := h.Get(t.Context(), 1); e.Delivery.Requeued() {
		t.Error("a new row looks requeued")
	}
	for _, c := range claim(t, h, 10) {
		if c.Attempts != 1 {
			t.Errorf("row %d: attempts %d", c.Row, c.Attempts)
		}
		if e, _ := h.Get(t.Context(), c.Row); e.Delivery.Requeued() {
			t.Errorf("row %d still looks requeued after its claim", c.Row)
		}
	}
}

func TestQuarantinePendingTakesPendingRowsAlone(t *testing.T) {
	s, _, rows := fourStates(t)
	before := strings.Split(rows(), "\n")
	results, err := tenant(t, s, "acme").QuarantinePending(t.Context(), []int64{5, 4, 3, 2, 1}, " customer asked ")
	if err != nil {
		t.Fatal(err)
	}
	want := "5:no such row 4:row 4 is quarantined 3:row 3 is delivered 2:row 2 is claimed 1:<nil> "
	if got := rowErrors(results); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	after := strings.Split(rows(), "\n")
	if want := "1|quarantined|2026-01-01T00:00:00.000000Z|0|<nil>|<nil>|<nil>|<nil>|<nil>|<nil>|2026-05-01T12:00:00.000000Z|operator: customer asked|"; after[0] != want {
		t.Errorf("%s\nwant %s", after[0], want)
	}
	if !slices.Equal(before[1:], after[1:]) {
		t.Errorf("other rows changed: %q", after[1:])
	}
	if list, err := s.AllTenants().List(t.Context(), outbox.Filter{Code: outbox.OperatorCode}, 10); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", entryRows(list), err)
	}
}

func TestQuarantinePendingNeedsAReason(t *testing.T) {
	s, _, rows := fourStates(t)
	before := rows()
	for _, reason := range []string{"", "  ", "two\nlines", "\x00", "\xff"} {
		if _, err := s.AllTenants().QuarantinePending(t.Context(), []int64{1}, reason); err == nil {
			t.Errorf("%q passes", reason)
		}
	}
	if rows() != before {
		t.Error("a row changed")
	}
	long := strings.Repeat("é", 2000)
	if r, err := s.AllTenants().QuarantinePending(t.Context(), []int64{1}, long); err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	e, _ := s.AllTenants().Get(t.Context(), 1)
	if got := e.Delivery.QuarantineReason; len(got) > 2048 || len(got) < 2046 || !strings.HasPrefix("operator: "+long, got) {
		t.Errorf("%d bytes", len(got))
	}
}

func TestOperatorActionsTakeManyRows(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	rows := outboxtest.Enqueue(t, db, events("acme", 1234)...)
	h := s.AllTenants()
	results, err := h.QuarantinePending(t.Context(), rows, "all")
	if err != nil || len(results) != len(rows) {
		t.Fatal(len(results), err)
	}
	// As a command does that requeues all of a code.
	f, n := outbox.Filter{State: outbox.Quarantined, Code: "operator"}, 0
	for {
		batch, err := h.SelectRows(t.Context(), f, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			break
		}
		results, err := h.Requeue(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		n += len(results)
		f.After = batch[len(batch)-1]
	}
	if st, err := h.Backlog(t.Context()); n != 1234 || err != nil || st.Pending != 1234 || st.Quarantined != 0 {
		t.Errorf("%d, %+v, %v", n, st, err)
	}
}

func TestOrphansAreListedAndRepairedOnRequest(t *testing.T) {
	c := &clock{noon}
	s := outboxtest.NewSpoiled(t, c.option)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 6)...)
	outboxtest.Enqueue(t, db, events("zeta", 3)...)
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z'`)
	must(t, db, `DELETE FROM dovecote_deliveries WHERE event_row_id IN (2, 4, 5, 8)`)
	all, acme := s.AllTenants(), tenant(t, s, "acme")
	for _, tc := range []struct {
		name   string
		handle *outbox.Handle
		after  int64
		limit  int
		want   []int64
	}{
		{"all", all, 0, 10, []int64{2, 4, 5, 8}},
		{"after", all, 4, 10, []int64{5, 8}},
		{"limit", all, 0, 2, []int64{2, 4}},
		{"one tenant", acme, 0, 10, []int64{2, 4, 5}},
	} {
		if rows, err := tc.handle.Orphans(t.Context(), tc.after, tc.limit); err != nil || !slices.Equal(rows, tc.want) {
			t.Errorf("%s: %v, %v", tc.name, rows, err)
		}
	}
	if len(claim(t, all, 100)) != 5 {
		t.Error("a claim found an orphan")
	}
	before := dump(t, db)
	repaired, err := acme.Repair(t.Context(), []int64{4, 1, 8, 2, 99, 4})
	if err != nil || !slices.Equal(repaired, []int64{4, 2}) {
		t.Fatalf("%v, %v", repaired, err)
	}
	want := before
	for _, row := range []string{"2", "4"} {
		want += row + "|pending|2026-05-01T12:00:00.000000Z|0|<nil>|<nil>|<nil>|<nil>|<nil>|<nil>|<nil>|<nil>|\n"
	}
	got, wanted := strings.Split(dump(t, db), "\n"), strings.Split(want, "\n")
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("%s\nwant %s", got, wanted)
	}
	if rows, err := all.Orphans(t.Context(), 0, 10); err != nil || !slices.Equal(rows, []int64{5, 8}) {
		t.Errorf("%v, %v", rows, err)
	}
	if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries d JOIN dovecote_events e ON e.row_id = d.event_row_id AND e.tenant_id = d.tenant_id`); n != 7 {
		t.Errorf("%d deliveries have the tenant of their event", n)
	}
	c.now = c.now.Add(time.Second)
	if rows := rowsOf(claim(t, all, 100)); !slices.Equal(rows, []int64{2, 4}) {
		t.Errorf("claimed %v", rows)
	}
	for _, limit := range []int{0, 1001} {
		if _, err := all.Orphans(t.Context(), 0, limit); !errors.As(err, new(*outbox.InvalidLimitError)) {
			t.Error(err)
		}
	}
}

func TestRepairTakesManyRows(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	rows := outboxtest.Enqueue(t, db, events("acme", 1100)...)
	must(t, db, `DELETE FROM dovecote_deliveries`)
	repaired, err := s.AllTenants().Repair(t.Context(), rows)
	if err != nil || !slices.Equal(repaired, rows) {
		t.Fatal(len(repaired), err)
	}
	if findings, err := s.AllTenants().Check(t.Context(), 0); err != nil || len(findings) != 0 {
		t.Error(findings, err)
	}
}
