package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// errDenied reports that the server forbids a request.
var errDenied = errors.New("no permission for this request")

// errDeaf reports that the server forbids the subscription to the answers.
var errDeaf = errors.New("no permission to subscribe to the answers")

// errNobody reports that nobody listens for a request.
var errNobody = errors.New("no responders")

// requestMark begins the reply token of a request; no flight's has it.
const requestMark = "-"

// requests are the questions to the server that wait for their answer. They
// share the inbox of the PubAcks, so that an answer proves that the inbox
// works.
type requests struct {
	mu      sync.Mutex
	last    uint64
	waiting map[string]chan *nats.Msg
}

func (r *requests) open() (token string, ch chan *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[string]chan *nats.Msg)
	}
	r.last++
	token, ch = requestMark+strconv.FormatUint(r.last, 36), make(chan *nats.Msg, 1)
	r.waiting[token] = ch
	return token, ch
}

func (r *requests) answer(token string, m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch, ok := r.waiting[token]; ok {
		ch <- m
		delete(r.waiting, token)
	}
}

func (r *requests) forget(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, token)
}

// request asks the server, within the publish timeout. Beside the context's
// errors it returns errDenied, errNobody and why nothing could be sent.
func (p *Publisher) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	ctx, cancelTime := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancelTime()
	nc := p.link.conn()
	if nc == nil {
		return nil, p.disconnected()
	}
	denied, cancel := p.denials.watch(subject)
	defer cancel()
	deaf, cancelDeaf := p.denials.watch(p.inbox + "*")
	defer cancelDeaf()
	token, ch := p.requests.open()
	defer p.requests.forget(token)
	sent := make(chan error, 1)
	go func() { sent <- nc.PublishRequest(subject, p.inbox+token, body) }() // may wait for a dial
	select {
	case err := <-sent:
		if noConnection(err) {
			return nil, p.disconnected()
		}
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case m := <-ch:
		if noResponders(m) {
			return nil, errNobody
		}
		return m.Data, nil
	case <-denied:
		return nil, errDenied
	case <-deaf:
		return nil, errDeaf
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// api asks the JetStream API. It returns an error of the API as a
// *jetstream.APIError.
func (p *Publisher) api(ctx context.Context, name string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	if question == nil {
		body = nil
	}
	data, err := p.request(ctx, p.apiPrefix()+name, body)
	if err != nil {
		return err
	}
	var head struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.Error != nil {
		return head.Error
	}
	return json.Unmarshal(data, answer)
}

func (p *Publisher) apiPrefix() string {
	switch {
	case p.o.APIPrefix != "":
		return p.o.APIPrefix + "."
	case p.o.Domain != "":
		return "$JS." + p.o.Domain + ".API."
	}
	return "$JS.API."
}

// account asks about the account, which is the cheapest question that only a
// working JetStream answers.
func (p *Publisher) account(ctx context.Context) (*jetstream.AccountInfo, error) {
	info := new(jetstream.AccountInfo)
	return info, p.api(ctx, "INFO", nil, info)
}

// jetStreamUsable is nil if JetStream answers, and also if the server will not
// say: then publishing itself is the test.
func (p *Publisher) jetStreamUsable(ctx context.Context) *Unusable {
	_, err := p.account(ctx)
	var refusal *jetstream.APIError
	var why *Unusable
	switch {
	case err == nil, errors.Is(err, errDenied):
		return nil
	case errors.As(err, &why):
		return why
	case errors.As(err, &refusal):
		code := codeOf(refusal)
		if code.Class() != relay.Unavailable {
			return nil
		}
		return &Unusable{code, refusal.Description}
	case errors.Is(err, errNobody):
		return &Unusable{relay.CodeJetStreamOff,
			"nobody answers " + p.apiPrefix() + "INFO: JetStream is not enabled here, or its domain or prefix is another"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Unusable{relay.CodeNoQuorum, "the JetStream API does not answer: it may have no leader"}
	}
	return &Unusable{relay.CodeUnavailable, plain(err)}
}

// Probe asks the broker whether it can be published to at all: the connection
// stands, pings come back, JetStream answers. The error is an *Unusable or
// ErrClosed. ctx bounds it, and so does the publish timeout.
func (p *Publisher) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	deaf := p.link.deaf.Load()
	if deaf != nil {
		if err := p.link.listen(p.link.conn(), listenAgain); err != nil {
			return explain(err)
		}
	} else if err := p.Usable(); err != nil {
		return err
	}
	if err := p.roundTrip(ctx); err != nil {
		return err
	}
	if why := p.jetStreamUsable(ctx); why != nil {
		if deaf != nil {
			return deaf
		}
		return why
	}
	if deaf != nil && p.link.deaf.CompareAndSwap(deaf, nil) {
		p.link.state.CompareAndSwap(deaf, nil)
	}
	return nil
}

// roundTrip waits for one ping's answer.
func (p *Publisher) roundTrip(ctx context.Context) error {
	nc, pong := p.link.conn(), make(chan error, 1)
	limit := p.o.PublishTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = max(time.Until(end), time.Millisecond)
	}
	go func() { pong <- nc.FlushTimeout(limit) }()
	select {
	case err := <-pong:
		if err == nil {
			p.health.hear(p.health.now())
			return nil
		}
		if errors.Is(err, nats.ErrTimeout) {
			return &Unusable{relay.CodeUnresponsive, "the server does not answer pings"}
		}
		return p.disconnected()
	case <-ctx.Done():
		return &Unusable{relay.CodeUnresponsive, "the server does not answer pings"}
	}
}
