package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

var preflightOptions = jetstream.PreflightOptions{
	Lease: 30 * time.Second, MaxAttempts: 20, MaxEvent: 64 << 10,
	Backoff: relay.Backoff{Initial: time.Second, Max: 5 * time.Minute, Multiplier: 2, Jitter: 0.2},
}

func preflight(t *testing.T, r *rig, rs *relay.Routes) []jetstream.Finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found := r.Preflight(ctx, rs, preflightOptions)
	for _, f := range found {
		if f.Severity == "" || f.Subject == "" || f.Problem == "" || f.Why == "" || f.Fix == "" {
			t.Errorf("finding with gaps: %+v", f)
		}
	}
	return found
}

// wantFinding checks that exactly one finding is about subject and says problem.
func wantFinding(t *testing.T, found []jetstream.Finding, severity jetstream.Severity, subject, problem string) {
	t.Helper()
	n := 0
	for _, f := range found {
		if f.Severity == severity && f.Subject == subject && strings.Contains(f.Problem, problem) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d findings %s %q %q among %+v", n, severity, subject, problem, found)
	}
}

// goodStream has nothing to complain about.
func goodStream(name string, subjects ...string) natsjs.StreamConfig {
	return natsjs.StreamConfig{Name: name, Subjects: subjects, Duplicates: 10 * time.Minute, Discard: natsjs.DiscardNew}
}

func TestPreflightFindsNothing(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	stream(t, s, goodStream("EVENTS", "ev.>"))
	r := connect(t, s, nil)
	rs := routes(t, relay.Route{Subject: "ev.{tenant}.{stream}", ExpectStream: "EVENTS"})
	if found := preflight(t, r, rs); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

func TestPreflightOfStreams(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	cases := []struct {
		name     string
		change   func(*natsjs.StreamConfig)
		severity jetstream.Severity
		problem  string
	}{
		{"no_ack", func(c *natsjs.StreamConfig) { c.NoAck = true }, "error", "does not acknowledge"},
		{"counters", func(c *natsjs.StreamConfig) { c.AllowMsgCounter, c.Discard = true, natsjs.DiscardOld }, "error", "counters"},
		{"short window", func(c *natsjs.StreamConfig) { c.Duplicates = 2 * time.Minute }, "warning", "duplicate window of 2m0s"},
		{"old events vanish by count", func(c *natsjs.StreamConfig) { c.Discard, c.MaxMsgs = natsjs.DiscardOld, 10 }, "warning", "max_msgs 10"},
		{"old events vanish by bytes", func(c *natsjs.StreamConfig) { c.Discard, c.MaxBytes = natsjs.DiscardOld, 1<<20 }, "warning", "max_bytes"},
		{"old events of a subject vanish", func(c *natsjs.StreamConfig) { c.Discard, c.MaxMsgsPerSubject = natsjs.DiscardOld, 1 }, "warning", "max_msgs_per_subject"},
		{"a full subject refuses", func(c *natsjs.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 1, true }, "warning", "discard_new_per_subject"},
		{"short age", func(c *natsjs.StreamConfig) { c.MaxAge = time.Hour }, "warning", "max_age is 1h0m0s"},
		{"small messages", func(c *natsjs.StreamConfig) { c.MaxMsgSize = 1000 }, "warning", "max_msg_size is 1000"},
		{"interest without consumers", func(c *natsjs.StreamConfig) { c.Retention = natsjs.InterestPolicy }, "warning", "no consumer"},
		{"work queue", func(c *natsjs.StreamConfig) { c.Retention = natsjs.WorkQueuePolicy }, "warning", "work queue"},
		{"memory", func(c *natsjs.StreamConfig) { c.Storage = natsjs.MemoryStorage }, "warning", "memory"},
		{"transform", func(c *natsjs.StreamConfig) {
			c.SubjectTransform = &natsjs.SubjectTransformConfig{Source: ">", Destination: "other.>"}
		}, "warning", "other subjects"},
	}
	var list []relay.Route
	for i, c := range cases {
		cfg := goodStream(fmt.Sprintf("S%d", i), fmt.Sprintf("s%d.>", i))
		c.change(&cfg)
		stream(t, s, cfg)
		list = append(list, relay.Route{Stream: fmt.Sprintf("s%d", i), Subject: fmt.Sprintf("s%d.{type}", i)})
	}
	sealed := stream(t, s, goodStream("SEALED", "sealed.>"))
	cfg := sealed.CachedInfo().Config
	cfg.Sealed = true
	if _, err := s.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	list = append(list, relay.Route{Stream: "sealed", Subject: "sealed.{type}"})
	found := preflight(t, connect(t, s, nil), routes(t, list...))
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			wantFinding(t, found, c.severity, fmt.Sprintf("stream S%d", i), c.problem)
		})
	}
	wantFinding(t, found, "error", "stream SEALED", "sealed")
}

func TestPreflightOfRoutes(t *testing.T) {
	s := natstest.Start(t, natstest.Options{Config: "max_payload: 65536"})
	stream(t, s, goodStream("EVENTS", "ev.a.>"))
	stream(t, s, goodStream("OTHER", "ev.b.>"))
	r := connect(t, s, nil)
	found := preflight(t, r, routes(t,
		relay.Route{Stream: "a", Subject: "none.{type}"},
		relay.Route{Stream: "b", Subject: "ev.a.{type}", ExpectStream: "OTHER"},
		relay.Route{Stream: "c", Subject: "ev.{type}", ExpectStream: "EVENTS"},
		relay.Route{Subject: "ev.a.{stream}"},
		relay.Route{Stream: "d", Subject: "ev.b.{stream}"},
	))
	wantFinding(t, found, "error", "route none.{type}", "no stream takes any subject like none.>")
	wantFinding(t, found, "error", "route ev.a.{type}", "expects stream OTHER")
	wantFinding(t, found, "warning", "route ev.{type}", "stream OTHER takes some")
	wantFinding(t, found, "warning", "route ev.b.{stream}", "never reached")
	wantFinding(t, found, "warning", "nats", "max_payload is 65536")
	if len(found) != 5 {
		t.Errorf("%d findings, want 5: %+v", len(found), found)
	}
}

func TestPreflightOfPermissions(t *testing.T) {
	config := func(publish string) string {
		return fmt.Sprintf(`authorization { users: [
			{user: admin, password: admin}
			{user: relay, password: pw, permissions: {publish: %s, subscribe: "_INBOX.>"}}
		]}`, publish)
	}
	s := natstest.Start(t, natstest.Options{Config: config(`["ev.a.>", "$JS.API.>", "$SYS.REQ.USER.INFO"]`)})
	stream(t, s, goodStream("EVENTS", "ev.>"), nats.UserInfo("admin", "admin"))
	asRelay := func(o *jetstream.Options) {
		o.URLs = []string{strings.Replace(s.URL(), "nats://", "nats://relay:pw@", 1)}
	}
	rs := routes(t,
		relay.Route{Stream: "a", Subject: "ev.a.{type}"},
		relay.Route{Stream: "b", Subject: "ev.b.{type}"},
		relay.Route{Subject: "ev.{type}"},
	)
	t.Run("told by the server", func(t *testing.T) {
		found := preflight(t, connect(t, s, asRelay), rs)
		wantFinding(t, found, "error", "route ev.b.{type}", "may not publish to ev.b.>")
		wantFinding(t, found, "warning", "route ev.{type}", "only some")
		if len(found) != 2 {
			t.Errorf("%+v", found)
		}
	})
	t.Run("hidden by the server", func(t *testing.T) {
		s.SetConfig(config(`["ev.>"]`))
		s.Restart()
		start := time.Now()
		found := preflight(t, connect(t, s, asRelay), rs)
		wantFinding(t, found, "unknown", "nats", "permissions are not visible")
		wantFinding(t, found, "unknown", "nats", "state of JetStream")
		wantFinding(t, found, "unknown", "route ev.a.{type}", "not visible")
		if len(found) != 5 {
			t.Errorf("%+v", found)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("refusals took %v: they look like timeouts", d)
		}
	})
}

func TestPreflightWithoutABroker(t *testing.T) {
	t.Run("down", func(t *testing.T) {
		r := dial(t, natstest.Prepare(t, natstest.Options{}), nil)
		found := preflight(t, r, routes(t, relay.Route{Subject: "ev"}))
		wantFinding(t, found, "error", "nats", "")
	})
	t.Run("credentials refused", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{Config: "authorization {user: a, password: b}"})
		found := preflight(t, dial(t, s, nil), routes(t, relay.Route{Subject: "ev"}))
		wantFinding(t, found, "error", "nats", "refuses the credentials")
	})
	t.Run("JetStream disabled", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{NoJetStream: true})
		found := preflight(t, dial(t, s, nil), routes(t, relay.Route{Subject: "ev"}))
		wantFinding(t, found, "error", "nats", "JetStream cannot be used")
	})
}
