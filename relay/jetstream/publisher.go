package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/relay"
)

// Options of a Publisher, from the [nats] table. Paths name files that are
// read again at every reconnect.
type Options struct {
	URLs           []string // may carry user information; empty is nats://127.0.0.1:4222
	Name           string
	Creds          string // file
	NKey           string // seed file
	User           string
	PasswordFile   string
	TokenFile      string
	PublishTimeout time.Duration // 0 is 5 s
	Domain         string        // JetStream domain, or
	APIPrefix      string        // prefix of the JetStream API; not both
	InboxPrefix    string        // "" is _INBOX
	Structured     bool          // mode = "structured"
	RoutingHeaders bool
	TraceHeaders   bool
	TLS            TLS
	Backoff        relay.Backoff // reconnects; never more than 30 s apart
	Log            zerolog.Logger
}

// TLS is the [nats.tls] table. CA or Cert makes TLS a must; so does a tls://
// URL. Otherwise the server decides.
type TLS struct {
	CA, Cert, Key  string
	HandshakeFirst bool
}

// ErrClosed reports that the publisher has been closed and will never publish
// again. Whoever did not call Close should end the process.
var ErrClosed = errors.New("publisher closed")

// Unusable says why nothing can be published now. It is a [relay.CodedError].
type Unusable struct {
	Code   relay.Code
	Detail string
}

func (e *Unusable) Error() string { return string(e.Code) + ": " + e.Detail }

// ResultCode implements relay.CodedError.
func (e *Unusable) ResultCode() relay.Code { return e.Code }

// Publisher implements relay.Publisher. Its methods are safe from any
// goroutine.
type Publisher struct {
	o     Options
	log   zerolog.Logger
	inbox string // subject of the answers, with the dot before the token
	stop  chan struct{}
	ended sync.WaitGroup // the goroutines that stop ends
	once  sync.Once

	link     link
	flights  flights
	health   health
	denials  denials
	doubt    doubt
	requests requests
	streams  streamBook

	encoding sync.Mutex // guards encoder
	encoder  encoder
}

// Publish starts sending m and returns at once, save that a connection whose
// peer reads nothing can hold it up for the publish timeout. The result
// arrives on done exactly once, soon after the publish timeout at the latest.
// An error is an *Unusable, ErrClosed or the context's: nothing was sent and
// nothing will arrive.
func (p *Publisher) Publish(ctx context.Context, m *relay.Message, done chan<- relay.Result) error {
	if err := p.Usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.encoding.Lock()
	defer p.encoding.Unlock()
	msg, fault := p.encoder.encode(m)
	if fault != nil {
		done <- *fault
		return nil
	}
	f := flight{
		row: m.Row, done: done, subject: m.Subject, expect: m.ExpectStream,
		payload: int32(len(msg.Data)), headers: int32(p.encoder.size()),
	}
	id := p.fly(f)
	if id == 0 {
		return &Unusable{relay.CodeUnavailable, "a million messages are in flight"}
	}
	msg.Reply = p.replyTo(id)
	if err := p.link.conn().PublishMsg(msg); err != nil {
		return p.unsent(id, err)
	}
	return nil
}

// unsent settles a publish that the library refused. Refusals come before
// anything is written; any other error is a write that failed part way, after
// which nobody knows what arrived.
func (p *Publisher) unsent(id uint64, err error) error {
	f, ok := p.flights.take(id)
	if !ok {
		return nil // its result is out already: the connection broke meanwhile
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		f.done <- f.tooLarge(p.link.conn().MaxPayload())
	case errors.Is(err, nats.ErrBadSubject):
		f.done <- f.result(relay.CodeInvalidSubject, "the subject cannot be sent: "+f.subject)
	case errors.Is(err, nats.ErrBadHeaderMsg):
		f.done <- f.result(relay.CodeUndecodable, "a header's name is invalid")
	case errors.Is(err, nats.ErrHeadersNotSupported):
		return &Unusable{relay.CodeUnavailable, "the server does not support message headers"}
	case noConnection(err):
		return p.disconnected()
	default:
		r := f.result(relay.CodeUnanswered, "the connection broke while the message was written: "+err.Error())
		r.Sent = true
		f.done <- r
	}
	return nil
}

// noConnection tells the library's refusals for want of a connection.
func noConnection(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, nats.ErrConnectionDraining) || errors.Is(err, nats.ErrInvalidConnection)
}

// disconnected is why there is no connection, also in the moment before the
// state has caught up.
func (p *Publisher) disconnected() error {
	if err := p.Usable(); err != nil {
		return err
	}
	return broken
}

// Flush is nil: the connection's own writer starts on every message at once.
func (p *Publisher) Flush() error { return nil }

// Usable is nil while the connection stands, else an *Unusable or, after
// Close, ErrClosed. It takes no lock.
func (p *Publisher) Usable() error { return p.link.usable() }

// Close ends the connection. What is still unanswered gets its result. It
// waits 2 s at the most.
func (p *Publisher) Close() {
	p.once.Do(func() {
		p.link.closed.Store(true)
		close(p.stop)
		gone := make(chan struct{})
		go func() {
			p.ended.Wait()
			close(gone)
		}()
		select {
		case <-gone:
		case <-time.After(2 * time.Second):
		}
		p.health.stop()
		p.failAll("the publisher was closed")
	})
}

// failAll settles everything that is in flight as sent and unanswered.
func (p *Publisher) failAll(why string) {
	for _, f := range p.flights.takeAll() {
		r := f.result(relay.CodeUnanswered, "unconfirmed: "+why+" before an answer came")
		r.Sent = true
		f.done <- r
	}
}
