//go:build unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/harness"
)

// Whatever producers put into the fields that a template uses: it is encoded, or
// its row is set aside at once under the name of the subject, and its neighbours
// are delivered in the same turn.
func TestSubjectsOfAnyContent(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute))
	good := s.insert(
		event{id: "plain"},
		event{id: "blank", typ: "a b"},
		event{id: "star", typ: "*"},
		event{id: "greater", typ: "a.>"},
		event{id: "percent", typ: "100%"},
		event{id: "dots of a tenant", tenant: ".a..b."},
		event{id: "dots of a subject", subject: ".x.*.>. "},
		event{id: "neighbour"},
	)
	bad := s.insert(
		event{id: "two dots", typ: "a..b"},
		event{id: "leading dot", typ: ".a"},
		event{id: "trailing dot", typ: "a."},
		event{id: "newline", typ: "a\nb"},
		event{id: "long", typ: strings.Repeat("x", 300)},
	)
	last := s.insert(event{id: "last neighbour"})
	c := s.config()
	c.Subject = "ev.{tenant}.{type}.{subject}"
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.waitStates(harness.States{Delivered: len(good) + 1, Quarantined: len(bad)})
	relay.Stop()

	for id, subject := range map[string]string{
		"two dots": "ev.acme.a..b._", "leading dot": "ev.acme..a._", "trailing dot": "ev.acme.a.._",
	} {
		if d := s.delivery(id); !strings.HasPrefix(d.reason, "invalid_subject: ") || !strings.Contains(d.reason, subject) {
			t.Errorf("%s: reason %q does not name %s", id, d.reason, subject)
		}
	}
	if d := s.delivery("newline"); !strings.HasPrefix(d.reason, "undecodable: ") || !strings.Contains(d.reason, "event_type") && !strings.Contains(d.reason, "type") {
		t.Errorf("newline: reason %q", d.reason)
	}
	if tried := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts > 1"); tried > 0 {
		t.Errorf("%d rows were tried again", tried)
	}
	want := map[string]bool{
		"ev.acme.placed._": true, "ev.acme.a%20b._": true, "ev.acme.%2A._": true, "ev.acme.a.%3E._": true,
		"ev.acme.100%25._": true, "ev.%2Ea%2E%2Eb%2E.placed._": true, "ev.acme.placed.%2Ex%2E%2A%2E%3E%2E%20": true,
	}
	for _, m := range s.stored("EVENTS") {
		if !want[m.Subject] {
			t.Errorf("stored under %q", m.Subject)
		}
	}
	log := relay.Log()
	if saying(logLines(t, log), "connected to NATS") != 1 || strings.Contains(log, "no_stream") {
		t.Errorf("reconnects, or talk of a missing stream:\n%s", log)
	}
	s.verify(harness.Expect{Also: append(append(good, bad...), last...), Quarantined: bad})
}

// The limit counts headers, and what it kept out goes once it is raised.
func TestSizeLimitCountsHeaders(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "max_payload: 65536\n", allEvents(time.Minute))
	all := s.insert(
		event{id: "at the limit", data: filler(65536)},
		event{id: "with headers over it", data: filler(65536 - 50)},
		event{id: "below", data: filler(60000)},
	)
	relay := s.startRelay("relay")
	s.waitStates(harness.States{Delivered: 1, Quarantined: 2})
	for _, id := range []string{"at the limit", "with headers over it"} {
		d := s.delivery(id)
		if d.attempts != 1 || !strings.HasPrefix(d.reason, "too_large: ") || !strings.Contains(d.reason, "65536") {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if d := s.delivery("with headers over it"); !strings.Contains(d.reason, "payload 65486 + headers ") {
		t.Errorf("the reason has not the size: %s", d.reason)
	}
	if n := saying(logLines(t, relay.Log()), "connected to NATS"); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	s.nats.SetConfig("max_payload: 8388608\n")
	s.nats.Restart()
	harness.MustRun(t, "requeue", "--all", "--db", s.db.Path)
	s.waitStates(harness.States{Delivered: 3})
	relay.Stop()
	s.verify(harness.Expect{Also: all})
}

func filler(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }

// A full stream is full for now: its events wait, however long, and arrive.
func TestFullStreamDelaysAndLosesNothing(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "")
	full := allEvents(time.Minute)
	full.MaxMsgs, full.Discard = 3, jetstream.DiscardNew
	stream := s.stream(full)
	var all []harness.Identity
	for i := range 6 {
		all = append(all, s.insert(event{id: fmt.Sprint("event ", i)})...)
	}
	c := s.config()
	c.MaxAttempts = 2
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.waitDeliveredAtLeast(3)
	harness.Eventually(t, harness.Patience, "the rest waits as stream_full", func() (bool, string) {
		n := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE state = 'pending' AND last_failure_code = 'stream_full'")
		return n >= 1, relay.Log()
	})
	harness.Steadily(t, 3*time.Second, "nothing is quarantined", func() (bool, string) {
		states := s.db.States()
		return states.Quarantined == 0 && states.Delivered == 3, states.String()
	})
	full.MaxMsgs = 100
	if _, err := s.nats.JetStream().UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	s.db.WaitDelivered(6, harness.Patience)
	relay.Stop()
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 6 {
		t.Errorf("the stream holds %+v (%v), want 6", info.State, err)
	}
	s.verify(harness.Expect{Also: all})
}

// An event that the stream can never take is told from one that has to wait.
func TestMessageTooLargeForItsStreamIsSetAside(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "")
	small := allEvents(time.Minute)
	small.MaxMsgSize = 700
	s.stream(small)
	good := s.insert(event{id: "small"})
	relay := s.startRelay("relay")
	var bad []harness.Identity
	// The reason names the limit once the relay has looked the stream up, soon after its start.
	harness.Eventually(t, harness.Patience, "the reason names the limit", func() (bool, string) {
		id := fmt.Sprint("large ", len(bad))
		bad = append(bad, s.insert(event{id: id, data: filler(900)})...)
		s.waitStates(harness.States{Delivered: 1, Quarantined: len(bad)})
		d := s.delivery(id)
		if d.attempts != 1 || !strings.HasPrefix(d.reason, "too_large: ") {
			t.Errorf("%+v", d)
		}
		return strings.Contains(d.reason, "max_msg_size 700"), d.reason
	})
	relay.Stop()
	s.verify(harness.Expect{Also: append(good, bad...), Quarantined: bad})
}

// A stream without acknowledgements stores the event and never says so. That
// can't be told from a lost answer, so the event ends quarantined as unconfirmed
// after few copies, and the log says what is wrong from the start.
func TestStreamThatNeverAcknowledgesEndsUnconfirmed(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute),
		jetstream.StreamConfig{Name: "NA", Subjects: []string{"na.>"}, NoAck: true, Duplicates: 2 * time.Second})
	silent := s.insert(event{id: "silent", stream: "na.x"})
	good := s.insert(event{id: "good", stream: "ev.x"})
	c := s.config()
	c.Subject, c.MaxAttempts, c.PublishTimeout = "{stream}", 4, 500*time.Millisecond
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.waitState("delivered", "good")
	s.waitState("quarantined", "silent")
	d := s.delivery("silent")
	if d.attempts != 4 || !strings.HasPrefix(d.reason, "attempts_exhausted: ") || !strings.Contains(d.reason, "unconfirmed") {
		t.Errorf("%+v", d)
	}
	if n := len(s.stored("NA")); n < 1 || n > 4 {
		t.Errorf("%d copies from 4 attempts", n)
	}
	if !strings.Contains(relay.Log(), "no_ack") {
		t.Errorf("the log does not name no_ack:\n%s", relay.Log())
	}
	ran := harness.Run(t, "", "check", "--config", harness.WriteConfig(t, c.TOML()))
	if !strings.Contains(ran.Stdout+ran.Stderr, "no_ack") {
		t.Errorf("relay check does not name no_ack:\n%s%s", ran.Stdout, ran.Stderr)
	}
	relay.Stop()
	if err := s.nats.JetStream().DeleteStream(t.Context(), "NA"); err != nil { // its copies are counted above
		t.Fatal(err)
	}
	s.verify(harness.Expect{Also: append(silent, good...), Quarantined: silent})
}

const twoSubjects = `
accounts { A { jetstream: enabled, users: [
  { user: admin, password: admin },
  { user: relay, password: relay, permissions: { publish: { allow: [ %s "$JS.API.>" ] }, subscribe: "_INBOX.>" } },
] } }
no_auth_user: admin
`

// A missing permission is named with its subject, holds up nothing else, and
// ends when it is granted.
func TestMissingPermissionIsNamedAndEndsWhenGranted(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, fmt.Sprintf(twoSubjects, `"ev.ok.>",`), allEvents(time.Minute))
	no := s.insert(event{id: "forbidden", stream: "no.a"})
	ok := s.insert(event{id: "allowed", stream: "ok.a"})
	c := s.config()
	c.URLs = []string{strings.Replace(s.nats.URL(), "://", "://relay:relay@", 1)}
	c.MaxAttempts = 2
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.waitState("delivered", "allowed")
	harness.Eventually(t, harness.Patience, "the row tells the reason", func() (bool, string) {
		d := s.delivery("forbidden")
		return d.code == "permission_denied" && strings.Contains(d.lastDetail, "ev.no.a"), d.lastDetail
	})
	harness.Eventually(t, harness.Patience, "log and readiness tell the reason", func() (bool, string) {
		_, body := harness.Get(c.Metrics, "/readyz")
		told := strings.Contains(body, "permission_denied") && strings.Contains(body, "ev.no.a")
		return told && strings.Contains(relay.Log(), "permission_denied"), body
	})
	s.nats.SetConfig(fmt.Sprintf(twoSubjects, `"ev.>",`))
	s.nats.Reload()
	s.waitState("delivered", "forbidden")
	harness.WaitReady(t, c.Metrics)
	relay.Stop()
	s.verify(harness.Expect{Also: append(no, ok...)})
}
