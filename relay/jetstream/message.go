package jetstream

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
)

// The headers of a message beside the CloudEvents attributes.
const (
	headerMsgID          = "Nats-Msg-Id"
	headerExpectedStream = "Nats-Expected-Stream"
	headerContentType    = "Content-Type"
	headerTenant         = "Outbox-Tenant"
	headerStream         = "Outbox-Stream"
	headerTraceParent    = "traceparent"
	headerTraceState     = "tracestate"

	attributePrefix       = "ce-"
	structuredContentType = "application/cloudevents+json; charset=utf-8"
)

// maxHeaders is JetStream's limit for the headers of a message, in bytes.
const maxHeaders = 1<<16 - 1

// encoder turns events into messages. It reuses its buffers: a message is good
// until the next one, which suffices because the client copies it into its
// write buffer before PublishMsg returns.
type encoder struct {
	structured bool
	routing    bool
	trace      bool

	headers    headers
	attributes []outbox.Attribute
	body       []byte
	msg        nats.Msg
}

// encode builds m's message, without reply. The second result is the outcome
// of a message that cannot be built.
func (c *encoder) encode(m *relay.Message) (*nats.Msg, *relay.Result) {
	e := m.Event
	h := &c.headers
	h.reset()
	h.set("", headerMsgID, m.ID)
	if m.ExpectStream != "" {
		h.set("", headerExpectedStream, m.ExpectStream)
	}
	c.msg.Data = e.Data.Bytes()
	if c.structured {
		body, err := e.AppendStructured(c.body[:0])
		if err != nil {
			return nil, rejected(m, relay.CodeUndecodable, err.Error())
		}
		c.body, c.msg.Data = body, body
		h.set("", headerContentType, structuredContentType)
	} else {
		c.attributes = e.AppendAttributes(c.attributes[:0])
		for _, a := range c.attributes {
			h.set(attributePrefix, a.Name, a.Value)
		}
	}
	if c.routing {
		h.set("", headerTenant, outbox.PercentEncode(e.Tenant))
		h.set("", headerStream, outbox.PercentEncode(e.Stream))
	}
	if c.trace {
		c.copyTrace(e)
	}
	if h.size > maxHeaders {
		return nil, rejected(m, relay.CodeHeadersTooLarge,
			fmt.Sprintf("headers of %d bytes exceed JetStream's limit of %d", h.size, maxHeaders))
	}
	c.msg.Subject = m.Subject
	c.msg.Header = h.finish()
	return &c.msg, nil
}

// size is that of the last message's headers on the wire, in bytes.
func (c *encoder) size() int { return c.headers.size }

// copyTrace copies the trace context extensions under the names that tracing
// libraries look for.
func (c *encoder) copyTrace(e *outbox.Event) {
	for _, name := range [...]string{headerTraceParent, headerTraceState} {
		if v, ok := e.Extensions[name]; ok {
			if text := strings.Trim(v.Text(), " \t"); isHeaderText(text) {
				c.headers.set("", name, text)
			}
		}
	}
}

func rejected(m *relay.Message, code relay.Code, detail string) *relay.Result {
	return &relay.Result{Row: m.Row, Class: code.Class(), Code: code, Detail: detail}
}

// isHeaderText tells whether the client sends s unchanged.
func isHeaderText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// headers builds the header map of one message after another. Most messages
// have the same headers as the one before, in the same order: then only the
// values change, which the map's slices point at, and the map is left alone.
type headers struct {
	m      nats.Header
	fields []headerField
	values []string // by position, as fields
	used   int
	size   int  // on the wire, in bytes
	same   bool // as the last message so far
}

type headerField struct{ prefix, name, key string }

const headerFrame = len("NATS/1.0\r\n") + len("\r\n")

func (h *headers) reset() {
	h.used, h.size, h.same = 0, headerFrame, true
}

func (h *headers) set(prefix, name, value string) {
	if h.used == len(h.fields) || h.fields[h.used].name != name || h.fields[h.used].prefix != prefix {
		h.same = false
		key := prefix + name
		h.fields = append(h.fields[:h.used], headerField{prefix, key[len(prefix):], key})
		h.values = append(h.values[:h.used], "")
	}
	h.values[h.used] = value
	h.size += len(h.fields[h.used].key) + len(value) + len(": \r\n")
	h.used++
}

func (h *headers) finish() nats.Header {
	if h.same && h.used == len(h.fields) {
		return h.m
	}
	h.fields, h.values = h.fields[:h.used], h.values[:h.used]
	if h.m == nil {
		h.m = make(nats.Header, h.used)
	}
	clear(h.m)
	for i, f := range h.fields {
		h.m[f.key] = h.values[i : i+1 : i+1]
	}
	return h.m
}
