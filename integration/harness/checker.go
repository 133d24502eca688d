//go:build unix

package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/integration/workload"
)

// Identity names an event. It is what consumers deduplicate on.
type Identity struct{ Tenant, Source, ID string }

func (i Identity) String() string { return i.Tenant + " " + i.Source + " " + i.ID }

// Expect says what the checker should find.
type Expect struct {
	// Also are events that were committed without a row in the application's
	// table: by plain SQL, or by "relay enqueue".
	Also []Identity
	// Unfinished allows pending rows; otherwise every row has to be delivered.
	// A claimed row is never allowed: the relays have stopped in order, or
	// their leases have ended.
	Unfinished bool
	// Quarantined are the events that have to be quarantined; no others may be.
	Quarantined []Identity
	// Faults excuse duplicates outside the duplicate window. Nil: none are excused.
	Faults *Journal
}

// Summary counts what the checker saw.
type Summary struct {
	Committed  int // events that the file has to hold
	Stored     int // messages in all streams
	Duplicates int // messages beyond the first of each event
}

// Check reads the database file and every stream of the broker and fails the
// test with each difference from what the contract says.
func Check(tb testing.TB, db *Database, url string, e Expect) Summary {
	tb.Helper()
	file, err := readFile(db.SQL)
	if err != nil {
		tb.Fatalf("checker: reading %s: %v", db.Path, err)
	}
	broker, err := readBroker(url)
	if err != nil {
		tb.Fatalf("checker: reading %s: %v", url, err)
	}
	v := &verdict{file: file, broker: broker, expect: e}
	v.judge()
	for _, p := range v.report() {
		tb.Errorf("checker: %s", p)
	}
	if len(v.problems) > 0 && e.Faults != nil {
		tb.Logf("faults:\n%s", e.Faults)
	}
	return v.summary
}

type verdict struct {
	file     fileState
	broker   brokerState
	expect   Expect
	summary  Summary
	problems map[string][]string // by kind
}

func (v *verdict) add(kind, format string, args ...any) {
	if v.problems == nil {
		v.problems = map[string][]string{}
	}
	v.problems[kind] = append(v.problems[kind], fmt.Sprintf(format, args...))
}

// report has the problems by kind, at most ten of a kind in full.
func (v *verdict) report() []string {
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(v.problems)) {
		list := v.problems[kind]
		for _, p := range list[:min(10, len(list))] {
			lines = append(lines, kind+": "+p)
		}
		if len(list) > 10 {
			lines = append(lines, fmt.Sprintf("%s: and %d more", kind, len(list)-10))
		}
	}
	return lines
}

func (v *verdict) judge() {
	committed := map[Identity]order{}
	for _, o := range v.file.orders {
		committed[o.Identity] = o
	}
	for _, id := range v.expect.Also {
		committed[id] = order{Identity: id}
	}
	v.summary.Committed = len(committed)
	for _, p := range v.file.general {
		v.add("damaged file", "%s", p)
	}
	if v.file.strays > 0 {
		v.add("stray delivery", "%d deliveries without an event", v.file.strays)
	}
	v.judgeRows(committed)
	v.judgeMessages(committed)
}

// judgeRows compares the file's events with what was committed, and every row
// with the state table.
func (v *verdict) judgeRows(committed map[Identity]order) {
	quarantined := map[Identity]bool{}
	for _, id := range v.expect.Quarantined {
		quarantined[id] = true
	}
	seen := map[Identity]bool{}
	for _, r := range v.file.rows {
		o, known := committed[r.Identity]
		switch {
		case !known:
			v.add("never committed", "row %d (%v) is in the outbox only", r.Row, r.Identity)
		case seen[r.Identity]:
			v.add("twice in the file", "row %d (%v)", r.Row, r.Identity)
		case o.Stream != "" && o.Stream != r.Stream, o.Type != "" && o.Type != r.Type, o.Body != "" && o.Body != r.Body:
			v.add("changed content", "row %d (%v) differs from what was enqueued", r.Row, r.Identity)
		}
		seen[r.Identity] = true
		if p := r.impossible(); p != "" {
			v.add("impossible row", "row %d (%v): %s", r.Row, r.Identity, p)
		}
		switch {
		case r.State == "quarantined" && !quarantined[r.Identity]:
			v.add("quarantined", "row %d (%v): %s", r.Row, r.Identity, r.ReasonText)
		case r.State != "quarantined" && quarantined[r.Identity]:
			v.add("not quarantined", "row %d (%v) is %s", r.Row, r.Identity, r.State)
		case r.State == "claimed":
			v.add("left claimed", "row %d (%v)", r.Row, r.Identity)
		case r.State == "pending" && !v.expect.Unfinished:
			v.add("left pending", "row %d (%v), %d attempts", r.Row, r.Identity, r.Attempts)
		}
	}
	for id := range committed {
		if !seen[id] {
			v.add("lost from the file", "%v", id)
		}
	}
}

// impossible names what breaks the state table, or is empty.
func (r row) impossible() string {
	claim := r.Token && r.Worker && r.Expiry
	noClaim := !r.Token && !r.Worker && !r.Expiry
	ok := false
	switch r.State {
	case "pending":
		ok = noClaim && !r.DeliveredAt && !r.QuarantinedAt && !r.Reason
	case "claimed":
		ok = claim && !r.DeliveredAt && !r.QuarantinedAt && !r.Reason && r.Attempts > 0
	case "delivered":
		ok = noClaim && r.DeliveredAt && !r.QuarantinedAt && !r.Reason && r.Attempts > 0
	case "quarantined":
		ok = noClaim && !r.DeliveredAt && r.QuarantinedAt && r.Reason
	case "":
		return "no delivery row"
	}
	switch {
	case !ok:
		return "columns do not fit the state " + r.State
	case r.Code != r.Detail:
		return "a failure code without detail, or the reverse"
	case r.DeliveryTenant != r.Tenant:
		return "the delivery's tenant is " + r.DeliveryTenant
	case r.Attempts < 0:
		return "negative attempts"
	}
	return ""
}

// judgeMessages compares the streams with what was committed and delivered.
func (v *verdict) judgeMessages(committed map[Identity]order) {
	byID := map[Identity][]stored{}
	for _, m := range v.broker.messages {
		v.summary.Stored++
		o, known := committed[m.Identity]
		switch {
		case m.Problem != "":
			v.add("foreign message", "%s #%d on %s: %s", m.InStream, m.Seq, m.Subject, m.Problem)
			continue
		case !known && strings.HasSuffix(m.ID, workload.Undone):
			v.add("rolled back but published", "%s #%d (%v)", m.InStream, m.Seq, m.Identity)
		case !known:
			v.add("published but never committed", "%s #%d (%v)", m.InStream, m.Seq, m.Identity)
		case o.Type != "" && o.Type != m.Type, o.Body != "" && m.Body != "" && o.Body != m.Body, o.Stream != "" && m.Stream != "" && o.Stream != m.Stream:
			v.add("changed on the way", "%s #%d (%v)", m.InStream, m.Seq, m.Identity)
		}
		if want := messageID(m.Identity); m.MessageID != want {
			v.add("wrong message id", "%s #%d (%v) has %q, want %q", m.InStream, m.Seq, m.Identity, m.MessageID, want)
		}
		byID[m.Identity] = append(byID[m.Identity], m)
	}
	for _, copies := range byID {
		v.judgeCopies(copies)
	}
	for _, r := range v.file.rows {
		if r.State == "delivered" && len(byID[r.Identity]) == 0 {
			v.add("lost", "row %d (%v) is delivered, but no stream has it", r.Row, r.Identity)
		}
	}
}

// judgeCopies accepts a further copy of an event only outside the stream's
// duplicate window, and only after a recorded fault.
func (v *verdict) judgeCopies(copies []stored) {
	slices.SortFunc(copies, func(a, b stored) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq))
	})
	v.summary.Duplicates += len(copies) - 1
	for i, c := range copies[1:] {
		before := copies[i]
		apart := c.At.Sub(before.At)
		switch {
		case c.InStream == before.InStream && apart < v.broker.windows[c.InStream]:
			v.add("duplicate inside the window", "%s #%d and #%d (%v), %v apart",
				c.InStream, before.Seq, c.Seq, c.Identity, apart)
		case len(v.expect.Faults.Between(before.At, c.At)) == 0:
			v.add("unexplained duplicate", "%s #%d and %s #%d (%v), %v apart, no fault between them",
				before.InStream, before.Seq, c.InStream, c.Seq, c.Identity, apart)
		}
	}
}
