package jetstream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/format"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// received is a stored message as the CloudEvents SDK wants it: attributes
// decoded, as the binding asks and the SDK does not do.
type received struct{ *natsjs.RawStreamMsg }

var (
	_     binding.Message               = received{}
	_     binding.MessageMetadataReader = received{}
	specs                               = spec.WithPrefix("ce-")
)

func (m received) ReadEncoding() binding.Encoding {
	if format.IsFormat(m.Header.Get("Content-Type")) {
		return binding.EncodingStructured
	}
	return binding.EncodingBinary
}

func (m received) ReadStructured(ctx context.Context, w binding.StructuredWriter) error {
	if m.ReadEncoding() != binding.EncodingStructured {
		return binding.ErrNotStructured
	}
	return w.SetStructuredEvent(ctx, format.Lookup(m.Header.Get("Content-Type")), bytes.NewReader(m.Data))
}

func (m received) ReadBinary(ctx context.Context, w binding.BinaryWriter) error {
	if m.ReadEncoding() != binding.EncodingBinary {
		return binding.ErrNotBinary
	}
	version := specs.Version(m.decoded("ce-specversion"))
	for name := range m.Header {
		var err error
		if attr := version.Attribute(name); attr != nil {
			err = w.SetAttribute(attr, m.decoded(name))
		} else if ext, ok := strings.CutPrefix(name, "ce-"); ok {
			err = w.SetExtension(ext, m.decoded(name))
		}
		if err != nil {
			return err
		}
	}
	return w.SetData(bytes.NewReader(m.Data))
}

func (m received) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	attr := specs.Version(m.decoded("ce-specversion")).AttributeFromKind(kind)
	return attr, m.decoded(attr.PrefixedName())
}

func (m received) GetExtension(name string) any { return m.decoded("ce-" + name) }
func (m received) Finish(error) error           { return nil }

func (m received) decoded(name string) string {
	s, err := url.PathUnescape(m.Header.Get(name))
	if err != nil {
		return "undecodable: " + m.Header.Get(name)
	}
	return s
}

// lastMessage reads what the stream holds.
func lastMessage(t *testing.T, st natsjs.Stream) *natsjs.RawStreamMsg {
	t.Helper()
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetMsg(t.Context(), info.State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fullEvent() outbox.Event {
	return outbox.Event{
		Tenant: "größe 1", Stream: "audit.v1", ID: `id "1"`, Source: "https://example.test/a%20b",
		Type: "com.example.audit", Subject: `größe é 100% "q"`,
		Time:        time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC),
		ContentType: "application/json", DataSchema: "https://example.test/schema", PartitionKey: "k/ %",
		Extensions: map[string]outbox.Value{
			"blanks":      outbox.String("  outer blanks "),
			"flag":        outbox.Bool(true),
			"count":       outbox.Int(-7),
			"bin":         outbox.Bytes([]byte{0, 255, 16}),
			"traceparent": outbox.String("00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01"),
			"tracestate":  outbox.String("vendor=value"),
		},
		Data: outbox.JSON([]byte(`{"b":9007199254740993,"a":"<&>","a":1e400}`)),
	}
}

// Case 10: an independent implementation reads back what the producer wrote.
func TestSDKReadsBothModes(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	for _, structured := range []bool{false, true} {
		name := map[bool]string{false: "binary", true: "structured"}[structured]
		t.Run(name, func(t *testing.T) {
			r := connect(t, s, func(o *jetstream.Options) { o.Structured = structured })
			want := fullEvent()
			r.publish("ev."+name, func(m *relay.Message) { m.Event, m.ID = &want, name })
			r.want(relay.Accepted, "")
			msg := lastMessage(t, st)
			got, err := binding.ToEvent(t.Context(), received{msg})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, &want)
			if !structured && !bytes.Equal(msg.Data, want.Data.Bytes()) {
				t.Errorf("body %q", msg.Data)
			}
			// Numbers keep their spelling; of duplicate names the last counts.
			if structured && !bytes.Contains(msg.Data, []byte(`"data":{"a":1e400,"b":9007199254740993}`)) {
				t.Errorf("body %s", msg.Data)
			}
		})
	}
}

func compare(t *testing.T, got *event.Event, want *outbox.Event) {
	t.Helper()
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ name, got, want string }{
		{"id", got.ID(), want.ID},
		{"source", got.Source(), want.Source},
		{"type", got.Type(), want.Type},
		{"subject", got.Subject(), want.Subject},
		{"datacontenttype", got.DataContentType(), want.ContentType},
		{"dataschema", got.DataSchema(), want.DataSchema},
		{"time", got.Time().Format(time.RFC3339Nano), want.Time.Format(time.RFC3339Nano)},
	} {
		if c.got != c.want {
			t.Errorf("%s %q, want %q", c.name, c.got, c.want)
		}
	}
	extensions := map[string]string{"partitionkey": want.PartitionKey}
	for name, v := range want.Extensions {
		extensions[name] = v.Text()
	}
	seen := map[string]string{}
	for name, v := range got.Extensions() {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := v.(string); ok {
			seen[name] = s
		} else if b, ok := v.([]byte); ok {
			seen[name] = base64.StdEncoding.EncodeToString(b)
		} else {
			seen[name] = string(text)
		}
	}
	if !maps.Equal(seen, extensions) {
		t.Errorf("extensions %v, want %v", seen, extensions)
	}
}

func TestHeadersOnTheWire(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	e := fullEvent()
	cases := []struct {
		name    string
		options func(*jetstream.Options)
		want    map[string]string // "" means absent
	}{
		{"binary", func(o *jetstream.Options) {}, map[string]string{
			"Nats-Msg-Id": "binary", "Nats-Expected-Stream": "EVENTS",
			"ce-specversion": "1.0", "ce-id": "id%20%221%22", "ce-source": "https://example.test/a%2520b",
			"ce-subject": "gr%C3%B6%C3%9Fe%20%C3%A9%20100%25%20%22q%22", "ce-time": "2026-01-02T03:04:05.123456Z",
			"ce-datacontenttype": "application/json", "ce-partitionkey": "k/%20%25", "ce-blanks": "%20%20outer%20blanks%20",
			"ce-flag": "true", "ce-count": "-7", "ce-bin": "AP8Q", "ce-tracestate": "vendor=value",
			"Content-Type": "", "Outbox-Tenant": "", "traceparent": "",
		}},
		{"binary with routing and trace", func(o *jetstream.Options) { o.RoutingHeaders, o.TraceHeaders = true, true }, map[string]string{
			"Outbox-Tenant": "gr%C3%B6%C3%9Fe%201", "Outbox-Stream": "audit.v1", "tracestate": "vendor=value",
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01",
		}},
		{"structured", func(o *jetstream.Options) { o.Structured = true }, map[string]string{
			"Nats-Msg-Id": "structured", "Content-Type": "application/cloudevents+json; charset=utf-8",
			"ce-id": "", "ce-specversion": "", "Outbox-Stream": "",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := connect(t, s, c.options)
			r.publish("ev.a", func(m *relay.Message) { m.Event, m.ID, m.ExpectStream = &e, c.name, "EVENTS" })
			r.want(relay.Accepted, "")
			msg := lastMessage(t, st)
			for name, want := range c.want {
				if got := msg.Header[name]; want == "" && got != nil || want != "" && (len(got) != 1 || got[0] != want) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// Case 11: the body is the producer's bytes.
func TestBodyIsExact(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, nil)
	random := make([]byte, 300)
	for i := range random {
		random[i] = byte(i * 7)
	}
	for _, c := range []struct {
		name string
		data outbox.Data
	}{
		{"JSON with large numbers and duplicate names", outbox.JSON([]byte(`{"b":9007199254740993,"a":"<&>","a":1e400}`))},
		{"a bare JSON string", outbox.JSON([]byte(`"x"`))},
		{"bytes that are no text", outbox.Binary(random)},
		{"present and empty", outbox.Binary(nil)},
		{"absent", outbox.Data{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.publish("ev.a", func(m *relay.Message) { m.Event.Data, m.ID = c.data, c.name })
			r.want(relay.Accepted, "")
			got := lastMessage(t, st).Data
			if sha256.Sum256(got) != sha256.Sum256(c.data.Bytes()) {
				t.Errorf("body %q, want %q", got, c.data.Bytes())
			}
		})
	}
}
