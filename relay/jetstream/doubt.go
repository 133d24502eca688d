package jetstream

import (
	"context"
	"sync"
	"time"

	"github.com/outbox-relay/relay/relay"
)

// doubt resolves what a message's own fate leaves open. "No responders" can
// mean that no stream takes the subject, and just as well that there is no
// JetStream at all; a PubAck that does not come, that the stream never sends
// any, or that JetStream has lost its quorum. It asks the JetStream API, once
// for all messages that wait, and remembers for a moment.
type doubt struct {
	mu     sync.Mutex
	asking bool
	asked  time.Time
	answer *Unusable // nil: JetStream works
}

// doubtMemory is how long an answer holds.
const doubtMemory = time.Second

// ask settles the messages that nobody listened for, now or soon.
func (d *doubt) ask(p *Publisher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begin(p) && !d.asking {
		p.resolve(d.answer)
	}
}

// suspect finds out about JetStream because a PubAck is overdue.
func (d *doubt) suspect(p *Publisher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begin(p) {
		p.streams.kick()
	}
}

// begin asks unless somebody does or just did. d.mu is held.
func (d *doubt) begin(p *Publisher) bool {
	if d.asking || !d.asked.IsZero() && time.Since(d.asked) < min(doubtMemory, p.o.PublishTimeout/4) {
		return false
	}
	d.asking = true
	go d.find(p)
	return true
}

func (d *doubt) find(p *Publisher) {
	ctx, cancel := context.WithTimeout(context.Background(), p.o.PublishTimeout/4)
	defer cancel()
	why := p.jetStreamUsable(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asking, d.asked, d.answer = false, time.Now(), why
	p.resolve(why)
}

// trouble is what the last answer says against JetStream, if it is younger
// than age.
func (d *doubt) trouble(age time.Duration) *Unusable {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.asked) > age {
		return nil
	}
	return d.answer
}

// resolve settles the messages that nobody listened for.
func (p *Publisher) resolve(why *Unusable) {
	for _, f := range p.flights.takeIf(func(f *flight) bool { return f.queried }) {
		var r relay.Result
		if why != nil {
			r = f.result(why.Code, why.Detail)
		} else {
			r = f.result(relay.CodeNoStream, noStreamText(&f, p.streams.covering(f.subject)))
		}
		r.Sent, r.At = true, time.Now()
		f.done <- r
	}
}
