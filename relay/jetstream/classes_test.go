package jetstream_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// Answers that one server can give, each beside a good neighbour.
func TestClassesOfAnswers(t *testing.T) {
	s := natstest.Start(t, natstest.Options{Config: "max_payload: 65536"})
	for _, cfg := range []natsjs.StreamConfig{
		{Name: "EVENTS", Subjects: []string{"ev.>"}},
		{Name: "FULL", Subjects: []string{"full.>"}, MaxMsgs: 1, Discard: natsjs.DiscardNew},
		{Name: "BYTES", Subjects: []string{"bytes.>"}, MaxBytes: 600, Discard: natsjs.DiscardNew},
		{Name: "PER", Subjects: []string{"per.>"}, MaxMsgsPerSubject: 1, Discard: natsjs.DiscardNew, DiscardNewPerSubject: true},
		{Name: "SMALL", Subjects: []string{"small.>"}, MaxMsgSize: 400},
		{Name: "COUNT", Subjects: []string{"count.>"}, AllowMsgCounter: true},
	} {
		stream(t, s, cfg)
	}
	sealed := stream(t, s, natsjs.StreamConfig{Name: "SEALED", Subjects: []string{"sealed.>"}})
	cfg := sealed.CachedInfo().Config
	cfg.Sealed = true
	if _, err := s.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	nc := s.Conn()
	for subject, reply := range map[string]string{"svc.text": "thanks", "svc.json": `{"ok":true}`, "svc.empty": ""} {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(reply)) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r := connect(t, s, nil)
	r.SetRoutes(routes(t, relay.Route{Stream: "s", Subject: "small.{type}"}, relay.Route{Subject: "none.{type}"}))
	r.publish("full.a")
	r.want(relay.Accepted, "")
	r.publish("bytes.a")
	r.want(relay.Accepted, "")
	r.publish("per.a")
	r.want(relay.Accepted, "")

	cases := []struct {
		name    string
		subject string
		change  func(*relay.Message)
		class   relay.Class
		code    relay.Code
		detail  []string
	}{
		{"nobody listens", "none.a", nil, relay.Blocked, relay.CodeNoStream, []string{"no stream takes subject none.a"}},
		{"nobody listens though a stream is expected", "none.a", expecting("EVENTS"), relay.Blocked, relay.CodeNoStream, []string{"EVENTS"}},
		{"full by count", "full.b", nil, relay.Blocked, relay.CodeStreamFull, []string{"maximum messages exceeded", "FULL"}},
		{"full by bytes", "bytes.b", withData(400), relay.Blocked, relay.CodeStreamFull, []string{"maximum bytes exceeded"}},
		{"one subject is full", "per.a", nil, relay.Failed, relay.CodeFailed, []string{"maximum messages per subject"}},
		{"larger than max_msg_size", "small.a", withData(500), relay.Rejected, relay.CodeTooLarge,
			[]string{"message size exceeds maximum allowed", "payload 500", "max_msg_size 400"}},
		{"larger than max_payload by its headers", "ev.a", withData(65536 - 50), relay.Rejected, relay.CodeTooLarge,
			[]string{"payload 65486 + headers", "max_payload 65536"}},
		{"larger than max_payload by itself", "ev.a", withData(65536), relay.Rejected, relay.CodeTooLarge, []string{"payload 65536"}},
		{"headers over 64 KiB", "ev.a", func(m *relay.Message) {
			m.Event.Extensions = map[string]outbox.Value{"big": outbox.String(strings.Repeat("é", 11000))}
		}, relay.Rejected, relay.CodeHeadersTooLarge, []string{"65535"}},
		{"sealed", "sealed.a", nil, relay.Blocked, relay.CodeSealed, []string{"sealed"}},
		{"another stream than expected", "ev.a", expecting("OTHER"), relay.Blocked, relay.CodeWrongStream, []string{"OTHER"}},
		{"a stream of counters", "count.a", nil, relay.Blocked, relay.CodeWrongStream, []string{"counter"}},
		{"a service that answers text", "svc.text", nil, relay.Blocked, relay.CodeInvalidAck, []string{"6 bytes that are no JSON"}},
		{"a service that answers JSON", "svc.json", nil, relay.Blocked, relay.CodeInvalidAck, []string{"other JSON"}},
		{"a service that answers nothing", "svc.empty", nil, relay.Blocked, relay.CodeInvalidAck, []string{"an empty message"}},
		{"a subject with a blank", "ev.a b", nil, relay.Rejected, relay.CodeInvalidSubject, []string{"ev.a b"}},
	}
	eventually(t, "look at the streams", func() bool {
		missing := r.Missing()
		return len(missing) == 1 && missing[0] == "none.{type}"
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r.t = t
			change := c.change
			if change == nil {
				change = func(*relay.Message) {}
			}
			row := r.publish(c.subject, change)
			if res := r.want(c.class, c.code, c.detail...); res.Row != row {
				t.Errorf("result for row %d, want %d", res.Row, row)
			}
			r.publish("ev.neighbour")
			r.want(relay.Accepted, "")
			r.wantNoMore()
		})
	}
	if n := len(r.log.lines("warn", "")); n > 0 {
		t.Errorf("%d warnings, want none: no answer may cost the connection\n%s", n, r.log)
	}
}

// Case 2: the limit is the server's of now, not of an earlier connection.
func TestMaxPayloadFollowsTheServer(t *testing.T) {
	s := natstest.Start(t, natstest.Options{Config: "max_payload: 65536"})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, nil)
	for _, n := range []int{65536, 65536 - 50} {
		r.publish("ev.a", withData(n))
		r.want(relay.Rejected, relay.CodeTooLarge, fmt.Sprintf("payload %d + headers ", n), "max_payload 65536")
	}
	r.publish("ev.a", withData(60000))
	r.want(relay.Accepted, "")
	s.SetConfig("max_payload: 8MB")
	s.Restart()
	r.waitUsable()
	r.publish("ev.a", withData(65536))
	r.want(relay.Accepted, "")
	s.SetConfig("max_payload: 4096")
	s.Reload()
	eventually(t, "smaller limit", func() bool {
		r.publish("ev.a", withData(5000))
		res := r.result()
		if res.Class == relay.Unavailable { // the server closed the connection over it
			r.waitUsable()
		}
		return res.Code == relay.CodeTooLarge
	})
	r.publish("ev.a", withData(100))
	r.want(relay.Accepted, "")
	r.wantNoMore()
	if n := stored(t, st); n < 3 {
		t.Errorf("%d messages stored, want at least 3", n)
	}
}

// A service that listens on the subject beside the stream may answer first.
func TestPubAckAfterAnotherAnswer(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	nc := s.Conn()
	answer := func(m *nats.Msg) {
		_ = m.Respond([]byte("me too"))
		time.AfterFunc(50*time.Millisecond, func() { _ = m.Respond([]byte(`{"stream":"EVENTS","seq":7}`)) })
	}
	if _, err := nc.Subscribe("ev.>", answer); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r := connect(t, s, nil)
	for range 5 {
		r.publish("ev.a", expecting("EVENTS"))
	}
	for range 5 {
		r.want(relay.Accepted, "")
	}
	r.wantNoMore()
}

// A PubAck that names another stream than the one expected is no success,
// whoever sent it.
func TestPubAckOfAForeignStream(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	nc := s.Conn()
	if _, err := nc.Subscribe("ev.a", func(m *nats.Msg) { _ = m.Respond([]byte(`{"stream":"OTHER", "seq":7}`)) }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	r := connect(t, s, nil)
	r.publish("ev.a", expecting("EVENTS"))
	r.want(relay.Blocked, relay.CodeWrongStream, "OTHER", "EVENTS")
}

// Case 4.
func TestStreamThatNeverAcknowledges(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "NA", Subjects: []string{"na.>"}, NoAck: true})
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, func(o *jetstream.Options) { o.PublishTimeout = 500 * time.Millisecond })
	r.SetRoutes(routes(t, relay.Route{Stream: "na", Subject: "na.{type}"}, relay.Route{Subject: "ev.{type}"}))
	eventually(t, "warning about no_ack", func() bool { return len(r.log.lines("warn", "does not acknowledge")) == 1 })
	r.publish("na.a")
	r.publish("ev.a")
	r.want(relay.Accepted, "")
	res := r.want(relay.Failed, relay.CodePublishTimeout, "unconfirmed", "stream NA", "no_ack")
	if !res.Sent {
		t.Error("a message that was sent counts as unsent")
	}
	if n := stored(t, st); n != 1 {
		t.Errorf("%d copies stored, want 1", n)
	}
	if r.Usable() != nil {
		t.Error("the connection counts as unusable")
	}
}

// Case 8.
func TestPublishPermissionMissing(t *testing.T) {
	config := func(allow string) string {
		return fmt.Sprintf(`authorization { users: [
			{user: admin, password: admin}
			{user: relay, password: secret-pw, permissions: {publish: [%s, "$JS.API.>"], subscribe: "_INBOX.>"}}
		]}`, allow)
	}
	s := natstest.Start(t, natstest.Options{Config: config(`"ev.ok.>"`)})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}}, nats.UserInfo("admin", "admin"))
	r := connect(t, s, func(o *jetstream.Options) {
		o.URLs = []string{strings.Replace(s.URL(), "nats://", "nats://relay:secret-pw@", 1)}
	})
	start := time.Now()
	for range 3 {
		r.publish("ev.no.a")
	}
	r.publish("ev.ok.a")
	refused := 0
	for range 4 {
		switch res := r.result(); {
		case res.Class == relay.Blocked && res.Code == relay.CodePermissionDenied && strings.Contains(res.Detail, "ev.no.a"):
			refused++
		case res.Class != relay.Accepted:
			t.Errorf("%+v", res)
		}
	}
	if refused != 3 {
		t.Errorf("%d refusals, want 3", refused)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("refusals took %v: they look like timeouts", d)
	}
	s.SetConfig(config(`"ev.>"`))
	s.Reload()
	eventually(t, "granted permission", func() bool {
		r.waitUsable()
		if _, err := r.tryPublish("ev.no.a"); err != nil {
			return false
		}
		return r.result().Class == relay.Accepted
	})
	if n := stored(t, st); n != 2 {
		t.Errorf("%d messages stored, want 2", n)
	}
	if strings.Contains(r.log.String(), "secret-pw") {
		t.Error("the password is in the log")
	}
}

// Without its inbox no PubAck can arrive: that is no reason to go on
// publishing copies.
func TestInboxPermissionMissing(t *testing.T) {
	config := func(subscribe string) string {
		return fmt.Sprintf(`authorization { users: [
			{user: admin, password: admin}
			{user: relay, password: pw, permissions: {publish: ">", subscribe: %q}}
		]}`, subscribe)
	}
	s := natstest.Start(t, natstest.Options{Config: config("_INBOX.other.>")})
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}}, nats.UserInfo("admin", "admin"))
	r := dial(t, s, func(o *jetstream.Options) {
		o.URLs = []string{strings.Replace(s.URL(), "nats://", "nats://relay:pw@", 1)}
	})
	eventually(t, "refused inbox", func() bool {
		err := r.Usable()
		return err != nil && strings.Contains(err.Error(), "no permission to subscribe")
	})
	if _, err := r.tryPublish("ev.a"); err == nil {
		t.Error("published although no answer can arrive")
	}
	if err := r.Probe(t.Context()); err == nil {
		t.Error("the probe succeeds")
	}
	if r.Usable() == nil {
		t.Error("usable after a probe that failed")
	}
	s.SetConfig(config("_INBOX.>"))
	s.Reload()
	r.waitUsable() // by itself: nobody probes what is known to be unusable
	r.publish("ev.a")
	r.want(relay.Accepted, "")
}

func TestJetStreamDisabled(t *testing.T) {
	t.Run("for the account", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{Config: `accounts {
			WITH: {jetstream: enabled, users: [{user: admin, password: admin}]}
			WITHOUT: {users: [{user: relay, password: pw}]}
		}`})
		r := connect(t, s, func(o *jetstream.Options) {
			o.URLs = []string{strings.Replace(s.URL(), "nats://", "nats://relay:pw@", 1)}
		})
		r.publish("ev.a")
		r.want(relay.Unavailable, relay.CodeJetStreamOff)
		if err := r.Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "jetstream_off") {
			t.Errorf("probe: %v", err)
		}
	})
	t.Run("on the server", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{NoJetStream: true})
		r := connect(t, s, nil)
		r.publish("ev.a")
		r.want(relay.Unavailable, relay.CodeJetStreamOff)
		s.SetConfig(fmt.Sprintf("jetstream: {store_dir: %q}", s.Store()))
		s.Restart()
		stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
		eventually(t, "probe", func() bool { return r.Probe(t.Context()) == nil })
		r.publish("ev.a")
		r.want(relay.Accepted, "")
	})
}

func TestAccountLimitBlocksTheRoute(t *testing.T) {
	s := natstest.Start(t, natstest.Options{Config: `accounts {
		A: {jetstream: {max_mem: 1MB, max_file: 10KB}, users: [{user: relay, password: pw}]}
	}`})
	auth := nats.UserInfo("relay", "pw")
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}}, auth)
	r := connect(t, s, func(o *jetstream.Options) {
		o.URLs = []string{strings.Replace(s.URL(), "nats://", "nats://relay:pw@", 1)}
	})
	for range 2 {
		r.publish("ev.a", withData(4000))
		r.want(relay.Accepted, "")
	}
	r.publish("ev.a", withData(4000))
	r.want(relay.Blocked, relay.CodeStreamFull, "resource limits exceeded for account")
}

// Nothing that a producer writes adds or breaks a header, whatever the row
// holds.
func TestNoHeaderInjection(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, func(o *jetstream.Options) { o.RoutingHeaders, o.TraceHeaders = true, true })
	evil := "x\r\nNats-Rollup: all\r\n\r\nbody"
	r.publish("ev.a", func(m *relay.Message) {
		m.Event.Tenant, m.Event.Stream, m.Event.Subject = evil, evil, evil
		m.Event.Extensions = map[string]outbox.Value{
			"traceparent": outbox.String(evil), "tracestate": outbox.String(evil), "x": outbox.String(evil),
		}
	})
	r.want(relay.Accepted, "")
	msg, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range msg.Header {
		if strings.HasPrefix(name, "Nats-") && name != "Nats-Msg-Id" {
			t.Errorf("header %s: %q", name, values)
		}
		if len(values) != 1 || strings.ContainsAny(values[0], "\r\n") {
			t.Errorf("header %s: %q", name, values)
		}
	}
	if !bytes.Equal(msg.Data, []byte(`{"a":1}`)) {
		t.Errorf("body %q", msg.Data)
	}
}

func TestMissingFollowsTheStreams(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	r := connect(t, s, nil)
	r.SetRoutes(routes(t, relay.Route{Stream: "a", Subject: "ev.{type}"}, relay.Route{Subject: "other.{type}"}))
	eventually(t, "two routes without a stream", func() bool { return len(r.Missing()) == 2 })
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.a", "ev.b.>"}})
	eventually(t, "one route without a stream", func() bool { return slices.Equal(r.Missing(), []string{"other.{type}"}) })
}
