package jetstream

import (
	"context"
	"sync"
	"time"

	"github.com/outbox-relay/relay/relay"
)

// doubt resolves "no responders", which can mean that no stream takes the
// subject, and just as well that there is no JetStream at all. It asks the
// JetStream API, once for all messages that wait, and remembers for a moment.
type doubt struct {
	mu     sync.Mutex
	asking bool
	asked  time.Time
	answer *Unusable // nil: JetStream works
}

// doubtMemory is how long an answer holds.
const doubtMemory = time.Second

func (d *doubt) ask(p *Publisher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.asking:
	case time.Since(d.asked) < doubtMemory:
		p.resolve(d.answer)
	default:
		d.asking = true
		go d.find(p)
	}
}

func (d *doubt) find(p *Publisher) {
	ctx, cancel := context.WithTimeout(context.Background(), p.o.PublishTimeout/2)
	defer cancel()
	why := p.jetStreamUsable(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asking, d.asked, d.answer = false, time.Now(), why
	p.resolve(why)
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
