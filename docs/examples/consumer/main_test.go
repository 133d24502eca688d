package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/outbox-relay/relay/outbox"
)

// awkward has values that only a right decoder gives back.
var awkward = outbox.Event{
	Tenant: "größe 100%", Stream: "orders.v1", ID: "a+b", Source: "/shop?x=%20y", Type: "com.example.order",
	Subject: `größe é 100% "q" 😀`, ContentType: "application/octet-stream", PartitionKey: "a b",
	Data: outbox.Binary([]byte{0, 1, '%', '2', '0', 0xff}),
}

var wantAttributes = map[string]string{
	"specversion": "1.0", "id": "a+b", "source": "/shop?x=%20y", "type": "com.example.order",
	"subject": `größe é 100% "q" 😀`, "datacontenttype": "application/octet-stream", "partitionkey": "a b",
}

const encodedTenant = "gr%C3%B6%C3%9Fe%20100%25"

func TestDecodesWhatTheRelayPublishes(t *testing.T) {
	binary := nats.Header{"Outbox-Tenant": {encodedTenant}, "Outbox-Stream": {"orders.v1"}, "Nats-Msg-Id": {awkward.MessageID()}}
	for _, a := range awkward.AppendAttributes(nil) {
		binary["ce-"+a.Name] = []string{a.Value}
	}
	envelope, err := awkward.AppendStructured(nil)
	if err != nil {
		t.Fatal(err)
	}
	structured := nats.Header{"Outbox-Tenant": {encodedTenant}, "Outbox-Stream": {"orders.v1"},
		"Content-Type": {"application/cloudevents+json; charset=utf-8"}}
	for _, c := range []struct {
		name   string
		header nats.Header
		body   []byte
	}{
		{"binary mode", binary, awkward.Data.Bytes()},
		{"structured mode", structured, envelope},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := decode(c.header, c.body)
			if err != nil {
				t.Fatal(err)
			}
			if e.tenant != awkward.Tenant || e.stream != awkward.Stream {
				t.Errorf("tenant %q, stream %q", e.tenant, e.stream)
			}
			if !reflect.DeepEqual(e.attributes, wantAttributes) {
				t.Errorf("attributes %q", e.attributes)
			}
			if !bytes.Equal(e.data, awkward.Data.Bytes()) {
				t.Errorf("data %q", e.data)
			}
			inPython(t, c.header, c.body)
		})
	}
}

// inPython has the Python example decode the same message.
func inPython(t *testing.T, h nats.Header, body []byte) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("python3 is not installed here: the Python example was not run")
		return
	}
	flat := map[string]string{}
	for name, values := range h {
		flat[name] = values[0]
	}
	input, err := json.Marshal(map[string]any{"headers": flat, "body": body})
	if err != nil {
		t.Fatal(err)
	}
	const script = `
import base64, json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "..")
import consumer
m = json.load(sys.stdin)
tenant, attributes, data = consumer.decode(m["headers"], base64.b64decode(m["body"]))
db = consumer.open_database(":memory:")
effects = [consumer.apply(db, tenant, attributes) for _ in range(3)]
json.dump([tenant, attributes, base64.b64encode(data).decode(), effects], sys.stdout)
`
	cmd := exec.Command(python, "-c", script)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal([]any{awkward.Tenant, wantAttributes, awkward.Data.Bytes(), []bool{true, false, false}})
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(out, &a), json.Unmarshal(want, &b)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("Python has %s, want %s", out, want)
	}
}

func TestRefusesWhatIsNoEvent(t *testing.T) {
	for _, c := range []struct {
		name   string
		header nats.Header
		body   string
	}{
		{"no attributes", nats.Header{}, "{}"},
		{"broken percent-encoding", nats.Header{"ce-id": {"%zz"}}, ""},
		{"envelope is no JSON", nats.Header{"Content-Type": {"application/cloudevents+json"}}, "{"},
		{"envelope without id", nats.Header{"Content-Type": {"application/cloudevents+json"}}, `{"specversion":"1.0"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if e, err := decode(c.header, []byte(c.body)); err == nil {
				t.Errorf("decoded as %v", e)
			}
		})
	}
}

func TestSecondCopyHasNoEffect(t *testing.T) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "seen.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(schemaSQL); err != nil {
		t.Fatal(err)
	}
	e := event{tenant: "a", attributes: map[string]string{"source": "/s", "id": "1", "type": "t"}}
	other := event{tenant: "b", attributes: e.attributes}
	for _, c := range []struct {
		event event
		first bool
	}{{e, true}, {e, false}, {other, true}, {e, false}} {
		first, err := apply(ctx, db, c.event)
		if err != nil || first != c.first {
			t.Errorf("tenant %s: first %v, want %v; %v", c.event.tenant, first, c.first, err)
		}
	}
	var n int
	if err := db.QueryRow("SELECT n FROM counts WHERE type = 't'").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d effects, want 2; %v", n, err)
	}
}

// The page shows parts of the programs: they must be the programs' own lines.
func TestPageQuotesThePrograms(t *testing.T) {
	page := read(t, "../../consuming.md")
	for language, file := range map[string]string{"go": "main.go", "python": "../consumer.py"} {
		_, block, found := strings.Cut(page, "```"+language+"\n")
		block, _, _ = strings.Cut(block, "```")
		if !found || !strings.Contains(unindent(read(t, file)), unindent(block)) {
			t.Errorf("the %s block of consuming.md is not in %s", language, file)
		}
	}
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimLeft(l, " \t")
	}
	return strings.Join(lines, "\n")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
