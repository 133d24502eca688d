package jetstream

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbox-relay/relay/relay"
)

// denials matches the server's permission errors, which come out of band and
// name only a subject, to those who wait for an answer.
type denials struct {
	mu      sync.Mutex
	waiting map[string][]chan struct{} // requests by subject
}

// watch returns a channel that is closed when subject is refused.
func (d *denials) watch(subject string) (denied <-chan struct{}, cancel func()) {
	ch := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = make(map[string][]chan struct{})
	}
	d.waiting[subject] = append(d.waiting[subject], ch)
	return ch, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		rest := d.waiting[subject]
		for i, c := range rest {
			if c == ch {
				d.waiting[subject] = append(rest[:i:i], rest[i+1:]...)
			}
		}
		if len(d.waiting[subject]) == 0 {
			delete(d.waiting, subject)
		}
	}
}

// refused tells those who watch subject.
func (d *denials) refused(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ch := range d.waiting[subject] {
		close(ch)
	}
	delete(d.waiting, subject)
}

// asyncError takes what the library reports outside of any call.
func (p *Publisher) asyncError(err error) {
	if why := explain(err); why.Code == relay.CodeCredentials {
		p.link.refused.Store(why)
		return
	}
	if !errors.Is(err, nats.ErrPermissionViolation) {
		p.log.Debug().Str("error", plain(err)).Msg("NATS client error")
		return
	}
	what, subject := parseViolation(err.Error())
	switch what {
	case violationPublish:
		p.denials.refused(subject)
		p.deny(subject)
	case violationSubscribe:
		if strings.HasPrefix(subject, p.inbox) {
			p.refuseInbox(subject)
		}
	case violationReply:
		p.denyAll(relay.CodeUnavailable, "the server forbids the reply subject "+subject)
	default:
		p.log.Warn().Str("error", plain(err)).Msg("NATS permission error")
	}
}

// deny settles what is in flight on a forbidden subject.
func (p *Publisher) deny(subject string) {
	for _, f := range p.flights.takeIf(func(f *flight) bool { return f.subject == subject }) {
		r := f.result(relay.CodePermissionDenied, "no permission to publish to "+subject)
		r.Sent, r.At = true, time.Now()
		f.done <- r
	}
}

// refuseInbox makes the publisher unusable: no PubAck can ever arrive.
func (p *Publisher) refuseInbox(subject string) {
	why := &Unusable{relay.CodeUnavailable, "no permission to subscribe to " + subject +
		", so that no PubAck can arrive: grant it or set nats.inbox_prefix"}
	p.denials.refused(subject) // whoever waits for an answer
	if !p.link.deaf.CompareAndSwap(nil, why) {
		return // refused again
	}
	p.link.state.CompareAndSwap(nil, why)
	p.link.complain(why, "NATS refuses the reply inbox")
	p.denyAll(relay.CodeUnanswered, "unconfirmed: "+why.Detail)
	p.listenLater(why, 1)
}

// listenLater tries the subscription again, for the nth time: a permission
// that is granted to a standing connection announces itself to nobody.
func (p *Publisher) listenLater(why *Unusable, n int) {
	time.AfterFunc(reconnectDelay(p.o.Backoff, n), func() {
		if p.link.closed.Load() || p.link.deaf.Load() != why {
			return
		}
		_ = p.Probe(context.Background()) // what it finds is in the state
		p.listenLater(why, n+1)
	})
}

func (p *Publisher) denyAll(code relay.Code, detail string) {
	for _, f := range p.flights.takeAll() {
		r := f.result(code, detail)
		r.Sent, r.At = true, time.Now()
		f.done <- r
	}
}

type violation uint8

const (
	violationOther violation = iota
	violationPublish
	violationReply
	violationSubscribe
)

// parseViolation reads the server's text, which quotes the subject as Go does.
func parseViolation(text string) (violation, string) {
	for _, v := range []struct {
		lead string
		what violation
	}{
		{"Permissions Violation for Publish to ", violationPublish},
		{"Permissions Violation for Publish with Reply of ", violationReply},
		{"Permissions Violation for Subscription to ", violationSubscribe},
	} {
		_, rest, ok := strings.Cut(text, v.lead)
		if !ok {
			continue
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return violationOther, ""
		}
		subject, err := strconv.Unquote(quoted)
		if err != nil {
			return violationOther, ""
		}
		return v.what, subject
	}
	return violationOther, ""
}
