package jetstream

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// Answers in the server's own words, and what becomes of each.
func TestSettle(t *testing.T) {
	const failure = `{"error":{"code":%C,"err_code":%E,"description":"%D"},"stream":"EVENTS","seq":0}`
	fail := func(status, code, description string) string {
		return strings.NewReplacer("%C", status, "%E", code, "%D", description).Replace(failure)
	}
	cases := []struct {
		name      string
		data      string
		expect    string
		class     relay.Class
		code      relay.Code
		duplicate bool
	}{
		{name: "stored", data: `{"stream":"EVENTS","seq":17}`, class: relay.Accepted},
		{name: "stored by the expected stream", data: `{"stream":"EVENTS","seq":17}`, expect: "EVENTS", class: relay.Accepted},
		{name: "stored before", data: `{"stream":"EVENTS", "seq":17,"duplicate": true}`, class: relay.Accepted, duplicate: true},
		{name: "stored in a domain", data: `{"stream":"EVENTS","domain":"hub","seq":17}`, class: relay.Accepted},
		{name: "stored by another stream", data: `{"stream":"EVENTS","seq":17}`, expect: "OTHER", class: relay.Blocked, code: relay.CodeWrongStream},
		{name: "message over max_msg_size", data: fail("400", "10054", "message size exceeds maximum allowed"), class: relay.Rejected, code: relay.CodeTooLarge},
		{name: "message too large for the store", data: fail("503", "10077", "message too large"), class: relay.Rejected, code: relay.CodeTooLarge},
		{name: "headers over 64k", data: fail("400", "10097", "header size exceeds maximum allowed of 64k"), class: relay.Rejected, code: relay.CodeHeadersTooLarge},
		{name: "full by messages", data: fail("503", "10077", "maximum messages exceeded"), class: relay.Blocked, code: relay.CodeStreamFull},
		{name: "full by bytes", data: fail("503", "10077", "maximum bytes exceeded"), class: relay.Blocked, code: relay.CodeStreamFull},
		{name: "one subject full", data: fail("503", "10077", "maximum messages per subject exceeded"), class: relay.Failed, code: relay.CodeFailed},
		{name: "store closed", data: fail("503", "10077", "store is closed"), class: relay.Unavailable, code: relay.CodeUnavailable},
		{name: "store failed otherwise", data: fail("503", "10077", "gremlins"), class: relay.Failed, code: relay.CodeFailed},
		{name: "queue of the stream full", data: fail("429", "10167", "too many requests"), class: relay.Blocked, code: relay.CodeStreamFull},
		{name: "account limit", data: fail("400", "10002", "resource limits exceeded for account"), class: relay.Blocked, code: relay.CodeStreamFull},
		{name: "sealed", data: fail("400", "10109", "invalid operation on sealed stream"), class: relay.Blocked, code: relay.CodeSealed},
		{name: "expected stream refused", data: fail("400", "10060", "expected stream does not match"), expect: "OTHER", class: relay.Blocked, code: relay.CodeWrongStream},
		{name: "duplicate in process", data: fail("409", "10158", "duplicate message id is in process"), class: relay.Failed, code: relay.CodeInProcess},
		{name: "subject check not ready", data: fail("503", "10163", "expected last sequence per subject temporarily unavailable"), class: relay.Failed, code: relay.CodeNotReady},
		{name: "JetStream off", data: fail("503", "10076", "JetStream not enabled"), class: relay.Unavailable, code: relay.CodeJetStreamOff},
		{name: "JetStream off for the account", data: fail("503", "10039", "JetStream not enabled for account"), class: relay.Unavailable, code: relay.CodeJetStreamOff},
		{name: "no quorum", data: fail("503", "10008", "JetStream system temporarily unavailable"), class: relay.Unavailable, code: relay.CodeNoQuorum},
		{name: "not the leader", data: fail("500", "10009", "JetStream cluster can not handle request"), class: relay.Unavailable, code: relay.CodeNoQuorum},
		{name: "server out of resources", data: fail("503", "10023", "insufficient resources"), class: relay.Unavailable, code: relay.CodeNoResources},
		{name: "account out of storage", data: fail("500", "10047", "insufficient storage resources available"), class: relay.Unavailable, code: relay.CodeNoResources},
		{name: "unknown code", data: fail("500", "19999", "something new"), class: relay.Failed, code: relay.CodeFailed},
		{name: "error without a code of its own", data: `{"error":{"code":500,"description":"odd"}}`, class: relay.Failed, code: relay.CodeFailed},
	}
	p := &Publisher{}
	p.streams.init()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := parseAnswer(&nats.Msg{Data: []byte(c.data)})
			f := &flight{row: 3, expect: c.expect, payload: 10, headers: 20}
			r := p.settle(f, a)
			if r.Class != c.class || r.Code != c.code || r.Duplicate != c.duplicate || r.Row != 3 || !r.Sent || r.At.IsZero() {
				t.Errorf("%+v", r)
			}
			if a.err != nil && !strings.Contains(r.Detail, a.err.Description) {
				t.Errorf("detail %q lacks the server's words", r.Detail)
			}
		})
	}
}

// Every code in the tables must be one that the loop can weigh.
func TestRulesUseCodesOfResults(t *testing.T) {
	for number, code := range errorRules {
		if code.Class() == 0 {
			t.Errorf("%d leads to %q, which has no class", number, code)
		}
	}
	for _, r := range storeFailedRules {
		if r.code.Class() == 0 {
			t.Errorf("%q leads to %q, which has no class", r.description, r.code)
		}
	}
	if _, ok := errorRules[storeFailed]; ok {
		t.Error("one rule for all that a store can report")
	}
}

func TestParseAnswer(t *testing.T) {
	cases := []struct {
		name string
		msg  nats.Msg
		want answerKind
	}{
		{"no responders", nats.Msg{Header: nats.Header{"Status": {"503"}}}, answerNoResponders},
		{"another status", nats.Msg{Header: nats.Header{"Status": {"408"}}}, answerForeign},
		{"empty", nats.Msg{}, answerForeign},
		{"text", nats.Msg{Data: []byte("OK")}, answerForeign},
		{"other JSON", nats.Msg{Data: []byte(`{"ok":true}`)}, answerForeign},
		{"JSON array", nats.Msg{Data: []byte(`[1]`)}, answerForeign},
		{"sequence missing", nats.Msg{Data: []byte(`{"stream":"S"}`)}, answerForeign},
		{"sequence zero", nats.Msg{Data: []byte(`{"stream":"S", "seq":0}`)}, answerForeign},
		{"stream empty", nats.Msg{Data: []byte(`{"stream":"", "seq":1}`)}, answerForeign},
		{"error of a service", nats.Msg{Data: []byte(`{"error":"no"}`)}, answerForeign},
		{"error that is empty", nats.Msg{Data: []byte(`{"error":{}}`)}, answerForeign},
		{"rest after the object", nats.Msg{Data: []byte(`{"stream":"S", "seq":1}}`)}, answerForeign},
		{"sequence with a sign", nats.Msg{Data: []byte(`{"stream":"S", "seq":-1}`)}, answerForeign},
		{"name with an escape", nats.Msg{Data: []byte(`{"stream":"S\u0041", "seq":1}`)}, answerPubAck},
		{"other spacing", nats.Msg{Data: []byte(` {"seq":1,"stream":"S"}`)}, answerPubAck},
	}
	for _, c := range cases {
		if got := parseAnswer(&c.msg); got.kind != c.want {
			t.Errorf("%s: kind %d, want %d", c.name, got.kind, c.want)
		}
	}
}

// The short cut must never disagree with the general decoder.
func FuzzPlainPubAck(f *testing.F) {
	for _, s := range []string{
		`{"stream":"S","seq":1}`, `{"stream":"S\"","seq":1}`, `{"stream":"é","seq":99}`, `{"stream":"","seq":1}`,
		`{"stream":"S","domain":"hub","seq":99}`, `{"stream":"S","seq":01}`, `{"stream":"S","seq":1e3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		name, ok := plainPubAck(b)
		if !ok {
			return
		}
		a := parseAnswer(&nats.Msg{Data: append([]byte(" "), b...)}) // the blank defeats the short cut
		if a.kind != answerPubAck || a.duplicate || !bytes.Equal(a.stream, name) {
			t.Fatalf("%q: %q, the decoder says %+v", b, name, a)
		}
	})
}

func TestPlainPubAckTakesWhatServersWrite(t *testing.T) {
	for _, s := range []string{`{"stream":"EVENTS","seq":17}`, `{"stream":"EVENTS","domain":"hub","seq":17}`} {
		if name, ok := plainPubAck([]byte(s)); !ok || string(name) != "EVENTS" {
			t.Errorf("%s: %q %v", s, name, ok)
		}
	}
}

func TestParseViolation(t *testing.T) {
	cases := []struct {
		text    string
		what    violation
		subject string
	}{
		{`nats: permissions violation: Permissions Violation for Publish to "ev.no.a"`, violationPublish, "ev.no.a"},
		{`Permissions Violation for Publish to "ev.%22\\x"`, violationPublish, `ev.%22\x`},
		{`Permissions Violation for Publish with Reply of "_R_.x"`, violationReply, "_R_.x"},
		{`Permissions Violation for Subscription to "_INBOX.a.*"`, violationSubscribe, "_INBOX.a.*"},
		{`Permissions Violation for Subscription to "a" using queue "q"`, violationSubscribe, "a"},
		{`Permissions Violation for Publish to ev`, violationOther, ""},
		{`something else`, violationOther, ""},
	}
	for _, c := range cases {
		if what, subject := parseViolation(c.text); what != c.what || subject != c.subject {
			t.Errorf("%s: %d %q", c.text, what, subject)
		}
	}
}

func TestErrorCodesAreTheLibrarys(t *testing.T) {
	// The numbers that the library names are a check on the table's.
	for code, want := range map[jetstream.ErrorCode]relay.Code{
		jetstream.JSErrCodeJetStreamNotEnabled:           relay.CodeJetStreamOff,
		jetstream.JSErrCodeJetStreamNotEnabledForAccount: relay.CodeJetStreamOff,
	} {
		if errorRules[code] != want {
			t.Errorf("%d: %q, want %q", code, errorRules[code], want)
		}
	}
}
