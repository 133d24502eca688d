package jetstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// answer is what came back for one message.
type answer struct {
	kind      answerKind
	stream    []byte // its name
	duplicate bool
	err       *jetstream.APIError // for answerError
	text      string              // for answerForeign: what it was
}

type answerKind uint8

const (
	answerPubAck       answerKind = iota // stored
	answerError                          // JetStream refuses
	answerNoResponders                   // nobody listens on the subject
	answerForeign                        // whoever answers is no stream
)

// replyTo is the subject of the answer to a flight.
func (p *Publisher) replyTo(id uint64) string {
	b := make([]byte, 0, 64)
	b = append(b, p.inbox...)
	return string(strconv.AppendUint(b, id, 36))
}

// onAnswer settles the flight that m answers.
func (p *Publisher) onAnswer(m *nats.Msg) {
	p.health.heard.Store(true)
	token := m.Subject[len(p.inbox):]
	if strings.HasPrefix(token, requestMark) {
		p.requests.answer(token, m)
		return
	}
	id, err := strconv.ParseUint(token, 36, 64)
	if err != nil {
		return
	}
	a := parseAnswer(m)
	switch a.kind {
	case answerNoResponders:
		if p.flights.mark(id, func(f *flight) { f.queried = true }) {
			p.doubt.ask(p)
		}
		return
	case answerForeign:
		p.await(id, a)
		return
	}
	f, ok := p.flights.take(id)
	if !ok {
		return // it comes too late
	}
	f.done <- p.settle(&f, a)
}

// graceForPubAck is how long a stream may take to answer after somebody else
// who listens on its subject has.
const graceForPubAck = 250 * time.Millisecond

// await gives the stream a chance to answer too.
func (p *Publisher) await(id uint64, a answer) {
	refused := fmt.Sprintf("the answer is no PubAck but %s: another service listens on the subject", a.text)
	if !p.flights.mark(id, func(f *flight) { f.refused = refused }) {
		return
	}
	time.AfterFunc(min(graceForPubAck, p.o.PublishTimeout/4), func() {
		if f, ok := p.flights.take(id); ok {
			r := f.result(relay.CodeInvalidAck, f.refused)
			r.Sent = true
			f.done <- r
		}
	})
}

// parseAnswer reads an answer's raw form.
func parseAnswer(m *nats.Msg) answer {
	if noResponders(m) {
		return answer{kind: answerNoResponders}
	}
	if stream, ok := plainPubAck(m.Data); ok {
		return answer{stream: stream}
	}
	var ack struct {
		Stream    string              `json:"stream"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
		Error     *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return answer{kind: answerForeign, text: describe(m)}
	}
	switch {
	case ack.Error != nil && (ack.Error.ErrorCode != 0 || ack.Error.Code != 0):
		return answer{kind: answerError, stream: []byte(ack.Stream), err: ack.Error}
	case ack.Stream == "" || ack.Sequence == 0:
		return answer{kind: answerForeign, text: describe(m)}
	}
	return answer{stream: []byte(ack.Stream), duplicate: ack.Duplicate}
}

func noResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}

// plainPubAck reads the forms in which servers write most PubAcks,
// {"stream":"NAME","seq":17}, with a domain or without, and without the cost
// of a general decoder. The name is part of b.
func plainPubAck(b []byte) (stream []byte, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"stream":"`))
	if !ok {
		return nil, false
	}
	stream, rest, ok = cutString(rest)
	if !ok || len(stream) == 0 {
		return nil, false
	}
	if domain, found := bytes.CutPrefix(rest, []byte(`,"domain":"`)); found {
		if _, rest, ok = cutString(domain); !ok {
			return nil, false
		}
	}
	seq, ok := bytes.CutPrefix(rest, []byte(`,"seq":`))
	if !ok {
		return nil, false
	}
	seq, ok = bytes.CutSuffix(seq, []byte("}"))
	if !ok || len(seq) == 0 || len(seq) > 18 || seq[0] == '0' {
		return nil, false
	}
	for _, c := range seq {
		if c < '0' || c > '9' {
			return nil, false
		}
	}
	return stream, true
}

// cutString cuts a JSON string of plain ASCII, whose opening quote is gone,
// from the front of b.
func cutString(b []byte) (text, rest []byte, ok bool) {
	for i, c := range b {
		switch {
		case c == '"':
			return b[:i], b[i+1:], true
		case c < ' ' || c > '~' || c == '\\':
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// describe shows a stranger's answer to a person, without its content, which
// may be anything.
func describe(m *nats.Msg) string {
	switch status := m.Header.Get("Status"); {
	case status != "":
		return fmt.Sprintf("a message with status %q", status)
	case len(m.Data) == 0:
		return "an empty message"
	case json.Valid(m.Data):
		return fmt.Sprintf("%d bytes of other JSON", len(m.Data))
	}
	return fmt.Sprintf("%d bytes that are no JSON", len(m.Data))
}
