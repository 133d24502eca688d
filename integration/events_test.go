//go:build unix

package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/natstest"
)

// stageWith is newStage with another broker and other streams.
func stageWith(t *testing.T, brokerConfig string, streams ...jetstream.StreamConfig) *stage {
	t.Helper()
	s := &stage{
		t:      t,
		nats:   natstest.Start(t, natstest.Options{Config: brokerConfig}),
		db:     harness.NewDatabase(t),
		faults: &harness.Journal{},
	}
	for _, c := range streams {
		s.stream(c)
	}
	return s
}

// stream creates a stream.
func (s *stage) stream(c jetstream.StreamConfig) jetstream.Stream {
	s.t.Helper()
	stream, err := s.nats.JetStream().CreateStream(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return stream
}

// allEvents is a stream that takes every event, with a duplicate window.
func allEvents(window time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}, Duplicates: window}
}

// stored are the messages of a stream, in its order.
func (s *stage) stored(stream string) []*jetstream.RawStreamMsg {
	s.t.Helper()
	js, err := s.nats.JetStream().Stream(s.t.Context(), stream)
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := js.Info(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		m, err := js.GetMsg(s.t.Context(), seq)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// event is a row that a producer in plain SQL writes; it can hold what the
// library would refuse. Empty fields take the values in brackets.
type event struct {
	id          string
	tenant      string // [acme]
	stream      string // [orders]
	typ         string // [placed]
	subject     any    // [NULL]
	contentType any    // [NULL, with data application/json]
	extensions  string // [{}]
	kind        any    // [NULL, with data json]
	data        any    // [NULL]
}

const insertEventSQL = `
INSERT INTO dovecote_events (tenant_id, stream, specversion, event_id, source, event_type, subject,
  datacontenttype, extensions, data_kind, data)
VALUES (?, ?, '1.0', ?, '/plain', ?, ?, ?, ?, ?, ?)`

const insertDeliverySQL = `
INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state)
SELECT row_id, tenant_id, 'pending' FROM dovecote_events WHERE row_id = last_insert_rowid()`

// insert commits all events in one transaction, in this order.
func (s *stage) insert(events ...event) []harness.Identity {
	s.t.Helper()
	tx, err := s.db.SQL.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback() // no effect after a commit
	var ids []harness.Identity
	for _, e := range events {
		if e.data != nil && e.kind == nil {
			e.kind = "json"
		}
		if e.data != nil && e.contentType == nil {
			e.contentType = "application/json"
		}
		tenant := orText(e.tenant, "acme")
		_, err := tx.Exec(insertEventSQL, tenant, orText(e.stream, "orders"), e.id, orText(e.typ, "placed"),
			e.subject, e.contentType, orText(e.extensions, "{}"), e.kind, e.data)
		if err == nil {
			_, err = tx.Exec(insertDeliverySQL)
		}
		if err != nil {
			s.t.Fatalf("event %q: %v", e.id, err)
		}
		ids = append(ids, harness.Identity{Tenant: tenant, Source: "/plain", ID: e.id})
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
	return ids
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// delivery is what became of an event.
type delivery struct {
	state            string
	attempts         int
	reason           string // of a quarantine
	code, lastDetail string // of the last failure
}

const deliverySQL = `
SELECT d.state, d.attempts, coalesce(d.quarantine_reason, ''), coalesce(d.last_failure_code, ''), coalesce(d.last_failure_detail, '')
FROM dovecote_deliveries d JOIN dovecote_events e ON e.row_id = d.event_row_id WHERE e.event_id = ?`

func (s *stage) delivery(id string) delivery {
	s.t.Helper()
	var d delivery
	err := s.db.SQL.QueryRow(deliverySQL, id).Scan(&d.state, &d.attempts, &d.reason, &d.code, &d.lastDetail)
	if err != nil {
		s.t.Fatalf("event %q: %v", id, err)
	}
	return d
}

// waitState waits until every event has the state.
func (s *stage) waitState(state string, ids ...string) {
	s.t.Helper()
	harness.Eventually(s.t, harness.Patience, strings.Join(ids, ", ")+": "+state, func() (bool, string) {
		for _, id := range ids {
			if d := s.delivery(id); d.state != state {
				return false, id + " is " + d.state + " " + d.reason + d.lastDetail
			}
		}
		return true, ""
	})
}

// waitStates waits until the rows are counted as wanted.
func (s *stage) waitStates(want harness.States) {
	s.t.Helper()
	harness.Eventually(s.t, harness.Patience, want.String(), func() (bool, string) {
		states := s.db.States()
		return states == want, states.String()
	})
}

// verify runs the checker for a test whose events are not all stored once.
func (s *stage) verify(e harness.Expect) harness.Summary {
	s.t.Helper()
	e.Faults = s.faults
	return harness.Check(s.t, s.db, s.nats.URL(), e)
}

// logLines decodes a relay's log; a line that is no JSON object fails the test.
func logLines(t *testing.T, log string) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(log) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("log line %q: %v", line, err)
			continue
		}
		lines = append(lines, object)
	}
	return lines
}

// saying counts the log lines whose message has text.
func saying(lines []map[string]any, text string) int {
	n := 0
	for _, line := range lines {
		if message, _ := line["message"].(string); strings.Contains(message, text) {
			n++
		}
	}
	return n
}
