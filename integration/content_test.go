//go:build unix

package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// The message body is the stored data, byte for byte, whether a producer wrote it
// as TEXT or as BLOB.
func TestBodiesArriveByteForByte(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute))
	rng := rand.New(rand.NewPCG(11, 11))
	random := make([]byte, 300)
	for i := range random {
		random[i] = byte(rng.IntN(256))
	}
	random[7], random[8], random[9] = 0, 0xff, 0xfe
	big := `{"b":9007199254740993,"a":"<&>","a":1e400}`
	bodies := map[string]any{
		"big blob": []byte(big), "big text": big, "string": []byte(`"just a string"`), "string text": `"<>"`,
		"random": random, "empty": []byte{}, "null": nil,
	}
	var all []harness.Identity
	for id, data := range bodies {
		e := event{id: id, data: data}
		if id == "random" || id == "empty" {
			e.kind, e.contentType = "binary", "application/octet-stream"
		}
		all = append(all, s.insert(e)...)
	}
	bad := s.insert(event{id: "broken", data: []byte(`{"a":`)}, event{id: "two values", data: "1 2"})
	relay := s.startRelay("relay")
	s.waitStates(harness.States{Delivered: len(all), Quarantined: len(bad)})
	relay.Stop()
	for _, m := range s.stored("EVENTS") {
		id, _ := url.PathUnescape(m.Header.Get("ce-id"))
		want, _ := bodies[id].([]byte)
		if text, ok := bodies[id].(string); ok {
			want = []byte(text)
		}
		if sha256.Sum256(m.Data) != sha256.Sum256(want) {
			t.Errorf("%s: body %q, want %q", id, m.Data, want)
		}
	}
	for _, id := range []string{"broken", "two values"} {
		if d := s.delivery(id); !strings.HasPrefix(d.reason, "undecodable: ") || !strings.Contains(d.reason, "data") {
			t.Errorf("%s: %+v", id, d)
		}
	}
	s.verify(harness.Expect{Also: append(all, bad...), Quarantined: bad})
}

// Attribute values survive the way through headers, in both modes, and no value
// can become a header of its own.
func TestAttributesArriveExactly(t *testing.T) {
	harness.Heavy(t)
	for _, mode := range []string{"binary", "structured"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := stageWith(t, "", allEvents(time.Minute))
			const subject = `größe é 100% "q"`
			good := s.insert(
				event{id: "subject", subject: subject, data: `{"n":1}`},
				event{id: "extension", subject: "x", extensions: `{"note":{"type":"string","value":"  outer blanks  "}}`},
			)
			bad := s.insert(event{id: "injection",
				extensions: `{"note":{"type":"string","value":"x\r\nNats-Rollup: all"}}`})
			c := s.config()
			c.Mode = mode
			relay := harness.StartRelay(t, "relay", c, s.faults)
			s.waitStates(harness.States{Delivered: 2, Quarantined: 1})
			relay.Stop()
			if d := s.delivery("injection"); !strings.HasPrefix(d.reason, "undecodable: ") || !strings.Contains(d.reason, "extensions") {
				t.Errorf("injection: %+v", d)
			}
			for _, m := range s.stored("EVENTS") {
				id, gotSubject, note := attributes(t, mode, m.Header.Get, m.Data)
				if m.Header.Get("Nats-Rollup") != "" {
					t.Errorf("%s: a producer's header left: %v", id, m.Header)
				}
				switch {
				case id == "subject" && gotSubject != subject:
					t.Errorf("subject %q, want %q", gotSubject, subject)
				case id == "extension" && note != "  outer blanks  ":
					t.Errorf("extension %q", note)
				case mode == "binary" && id == "subject" && m.Header.Get("ce-datacontenttype") != "application/json":
					t.Errorf("content type in %v", m.Header)
				}
			}
			s.verify(harness.Expect{Also: append(good, bad...), Quarantined: bad})
		})
	}
}

// attributes reads a message as the binding says.
func attributes(t *testing.T, mode string, header func(string) string, data []byte) (id, subject, note string) {
	t.Helper()
	if mode == "binary" {
		var values [3]string
		for i, name := range []string{"ce-id", "ce-subject", "ce-note"} {
			value, err := url.PathUnescape(header(name))
			if err != nil {
				t.Errorf("header %s: %v", name, err)
			}
			values[i] = value
		}
		return values[0], values[1], values[2]
	}
	var e struct{ ID, Subject, Note string }
	if err := json.Unmarshal(data, &e); err != nil {
		t.Error(err)
	}
	return e.ID, e.Subject, e.Note
}

// Rows that cannot be decoded, and rows whose subject has no stream, are the
// oldest and more than a batch: the good ones behind them are not held up.
func TestPoisonRowsHoldNobodyUp(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute))
	poison := map[string]event{
		"empty type in extensions": {extensions: `{"x":{"type":"","value":"1"}}`},
		"extensions are no JSON":   {extensions: `{"x":`},
		"extensions are a list":    {extensions: `[1]`},
		"kind without data type":   {data: []byte("x"), kind: "binary", contentType: "no media type"},
		"invalid UTF-8 as JSON":    {data: []byte{'"', 0xff, '"'}},
		"control character":        {subject: "a\x00b"},
		"number for a subject":     {subject: 7, extensions: `"text"`},
	}
	var bad []harness.Identity
	for id, e := range poison {
		e.id = id
		bad = append(bad, s.insert(e)...)
	}
	var waiting []harness.Identity
	for i := range 30 {
		waiting = append(waiting, s.insert(event{id: fmt.Sprint("waiting ", i), stream: "nowhere"})...)
	}
	var good []harness.Identity
	for i := range 5 {
		good = append(good, s.insert(event{id: fmt.Sprint("good ", i), stream: "ev"})...)
	}
	c := s.config()
	c.Batch, c.Subject, c.MaxAttempts = 10, "{stream}.x", 2
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.Eventually(t, 5*time.Second, "the good ones are delivered", func() (bool, string) {
		states := s.db.States()
		return states.Delivered == len(good) && states.Quarantined == len(bad), states.String()
	})
	harness.Eventually(t, harness.Patience, "the others wait for later times", func() (bool, string) {
		n := s.db.Int(`SELECT count(*) FROM dovecote_deliveries WHERE state = 'pending' AND attempts > 0
			AND available_at > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`)
		return n > 0, s.db.States().String()
	})
	if late := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE state = 'delivered' AND attempts > 1"); late > 0 {
		t.Errorf("%d good rows were tried again", late)
	}
	for id := range poison {
		if d := s.delivery(id); !strings.HasPrefix(d.reason, "undecodable: ") {
			t.Errorf("%s: %+v", id, d)
		}
	}
	// A stream for the others lets them go, whatever their attempts are.
	nowhere := allEvents(time.Minute)
	nowhere.Name, nowhere.Subjects = "NOWHERE", []string{"nowhere.>"}
	s.stream(nowhere)
	s.waitStates(harness.States{Delivered: len(good) + len(waiting), Quarantined: len(bad)})
	relay.Stop()
	s.verify(harness.Expect{Also: append(append(good, waiting...), bad...), Quarantined: bad})
}

// The documentation promises no order once an event fails; without failures
// events leave in the order of insertion. A failing event holds up no other.
func TestOrderWithoutFailuresIsInsertion(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, []byte("order")) {
		t.Error("README.md does not say what order is promised")
	}
	s := stageWith(t, "", allEvents(time.Minute))
	late := s.insert(event{id: "late", stream: "missing.a"})
	var all []harness.Identity
	for i := range 50 {
		all = append(all, s.insert(event{id: fmt.Sprintf("%03d", i), stream: "ev.a"})...)
	}
	c := s.config()
	c.Subject = "{stream}"
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.waitDeliveredAtLeast(50)
	var order []string
	for _, m := range s.stored("EVENTS") {
		order = append(order, m.Header.Get("ce-id"))
	}
	for i, id := range order {
		if id != fmt.Sprintf("%03d", i) {
			t.Fatalf("order %v", order)
		}
	}
	missing := allEvents(time.Minute)
	missing.Name, missing.Subjects = "MISSING", []string{"missing.>"}
	s.stream(missing)
	s.waitState("delivered", "late")
	relay.Stop()
	s.verify(harness.Expect{Also: append(all, late...)})
}
