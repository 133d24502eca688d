//go:build unix

package harness

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The checker has to see every kind of damage; a checker that is blind would
// let each scenario pass.
func TestCheckerSees(t *testing.T) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	type world struct {
		file   fileState
		broker brokerState
		expect Expect
	}
	again := func(w *world, after time.Duration) {
		m := w.broker.messages[0]
		m.Seq, m.At = 9, m.At.Add(after)
		w.broker.messages = append(w.broker.messages, m)
	}
	crashed := &Journal{faults: []Fault{{At: start.Add(time.Second), What: "relay killed"}}}
	cases := []struct {
		name  string
		spoil func(w *world)
		want  string // kind of the only problem, "" for none
	}{
		{"a clean run", func(*world) {}, ""},
		{"an event lost from the file", func(w *world) {
			w.file.rows = w.file.rows[1:]
		}, "lost from the file"},
		{"a delivered event that no stream has", func(w *world) {
			w.broker.messages = w.broker.messages[1:]
		}, "lost"},
		{"an event without its order", func(w *world) {
			w.file.orders, w.broker.messages = w.file.orders[1:], w.broker.messages[1:]
			w.file.rows[0].State = "pending"
			w.file.rows[0].DeliveredAt = false
			w.expect.Unfinished = true
		}, "never committed"},
		{"a rolled back order in the stream", func(w *world) {
			m := w.broker.messages[0]
			m.ID = "a-7-undone"
			m.MessageID = messageID(m.Identity)
			w.broker.messages = append(w.broker.messages, m)
		}, "rolled back but published"},
		{"an event from nowhere in the stream", func(w *world) {
			m := w.broker.messages[0]
			m.ID = "x"
			m.MessageID = messageID(m.Identity)
			w.broker.messages = append(w.broker.messages, m)
		}, "published but never committed"},
		{"a message id of another rule", func(w *world) { w.broker.messages[0].MessageID = "1" }, "wrong message id"},
		{"a body changed on the way", func(w *world) { w.broker.messages[0].Body = "other" }, "changed on the way"},
		{"a body changed in the file", func(w *world) { w.file.rows[0].Body = "other" }, "changed content"},
		{"a message that is no event", func(w *world) {
			w.broker.messages = append(w.broker.messages, stored{Problem: "no ce-id"})
		}, "foreign message"},
		{"a copy inside the window", func(w *world) {
			again(w, 3*time.Second)
			w.expect.Faults = crashed
		}, "duplicate inside the window"},
		{"a copy outside the window without a crash", func(w *world) { again(w, 3*time.Minute) }, "unexplained duplicate"},
		{"a copy outside the window after a crash", func(w *world) {
			again(w, 3*time.Minute)
			w.expect.Faults = crashed
		}, ""},
		{"a row left claimed", func(w *world) {
			r := &w.file.rows[0]
			r.State, r.DeliveredAt, r.Token, r.Worker, r.Expiry = "claimed", false, true, true, true
		}, "left claimed"},
		{"a pending row at the end", func(w *world) {
			w.file.rows[0].State, w.file.rows[0].DeliveredAt = "pending", false
		}, "left pending"},
		{"a pending row with a token", func(w *world) {
			r := &w.file.rows[0]
			r.State, r.DeliveredAt, r.Token = "pending", false, true
			w.expect.Unfinished = true
		}, "impossible row"},
		{"a delivered row that nobody claimed", func(w *world) { w.file.rows[0].Attempts = 0 }, "impossible row"},
		{"a missing delivery", func(w *world) { w.file.rows[0].State = "" }, "impossible row"},
		{"an unexpected quarantine", func(w *world) {
			r := &w.file.rows[0]
			r.State, r.DeliveredAt, r.QuarantinedAt, r.Reason = "quarantined", false, true, true
		}, "quarantined"},
		{"a bad event that got through", func(w *world) {
			w.expect.Quarantined = []Identity{w.file.rows[0].Identity}
		}, "not quarantined"},
		{"a delivery without an event", func(w *world) { w.file.strays = 1 }, "stray delivery"},
		{"a damaged page", func(w *world) { w.file.general = []string{"row missing from index"} }, "damaged file"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := &world{broker: brokerState{windows: map[string]time.Duration{"EVENTS": 2 * time.Minute}}}
			for _, id := range []string{"a-1", "a-2"} {
				o := order{Identity: Identity{"acme", "/shop", id}, Stream: "orders", Type: "t", Body: "b"}
				w.file.orders = append(w.file.orders, o)
				w.file.rows = append(w.file.rows, row{
					order: o, Row: int64(len(w.file.rows) + 1), State: "delivered",
					DeliveryTenant: "acme", Attempts: 1, DeliveredAt: true,
				})
				w.broker.messages = append(w.broker.messages, stored{
					order: o, MessageID: messageID(o.Identity), InStream: "EVENTS",
					Seq: uint64(len(w.broker.messages) + 1), At: start,
				})
			}
			c.spoil(w)
			v := &verdict{file: w.file, broker: w.broker, expect: w.expect}
			v.judge()
			got := v.report()
			if c.want == "" && len(got) > 0 {
				t.Errorf("reported %q, want nothing", got)
			}
			if c.want != "" && !slices.ContainsFunc(got, func(p string) bool { return strings.HasPrefix(p, c.want+": ") }) {
				t.Errorf("reported %q, want a %q", got, c.want)
			}
			if len(got) > 1 {
				t.Errorf("reported %q for one fault", got)
			}
		})
	}
}
