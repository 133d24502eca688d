package jetstream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// health ends the flights whose time is up. It tells a message that nobody
// confirmed from a server that answers nothing: while an answer is overdue it
// pings, and what it heard last decides. With nothing in flight it sleeps.
type health struct {
	p     *Publisher
	born  time.Time
	tick  time.Duration
	heard atomic.Bool // an answer came since the last sweep

	pinging   atomic.Bool
	lastHeard atomic.Int64 // time.Duration since born; what the server said last

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (h *health) init(p *Publisher) {
	h.p = p
	h.born = time.Now()
	h.tick = min(max(p.o.PublishTimeout/20, 5*time.Millisecond), 250*time.Millisecond)
	h.timer = time.AfterFunc(time.Hour, h.sweep)
	h.timer.Stop()
}

// now is the monotonic time since the publisher began.
func (h *health) now() time.Duration { return time.Since(h.born) }

// watch makes the sweeps begin.
func (h *health) watch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.timer.Reset(h.tick)
	}
}

func (h *health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.timer.Stop()
}

// sweep settles what is overdue and comes again while anything is in flight.
func (h *health) sweep() {
	now, timeout := h.now(), h.p.o.PublishTimeout
	if h.heard.Swap(false) {
		h.hear(now)
	}
	for _, f := range h.p.flights.takeSent(now - timeout) {
		f.done <- h.verdict(&f)
	}
	if sent, ok := h.p.flights.oldestSent(); ok {
		if now-sent > timeout/2 {
			h.p.doubt.suspect(h.p)
			if now-h.last() > timeout/8 {
				h.ping()
			}
		}
		h.watch()
	}
}

func (h *health) hear(at time.Duration) { h.lastHeard.Store(int64(at)) }
func (h *health) last() time.Duration   { return time.Duration(h.lastHeard.Load()) }

// verdict is the result of a message whose time is up. The connection counts
// as alive if the server said anything in the last quarter of that time.
func (h *health) verdict(f *flight) relay.Result {
	var r relay.Result
	timeout := h.p.o.PublishTimeout
	switch {
	case f.refused != "":
		r = f.result(relay.CodeInvalidAck, f.refused)
	case f.queried:
		r = f.result(relay.CodeNoStream, noStreamText(f, h.p.streams.covering(f.subject)))
	case h.last() >= f.sent+timeout-timeout/4:
		code, text := h.p.overdue(f)
		r = f.result(code, text)
	default:
		r = f.result(relay.CodeUnanswered, "unconfirmed: neither the message nor pings were answered within "+timeout.String())
	}
	r.Sent = true
	return r
}

// ping asks the server for a sign of life; one at a time.
func (h *health) ping() {
	if !h.pinging.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer h.pinging.Store(false)
		if nc := h.p.link.conn(); nc != nil && nc.FlushTimeout(h.p.o.PublishTimeout/2) == nil {
			h.hear(h.now())
		}
	}()
}

// fly puts f in flight.
func (p *Publisher) fly(f flight) uint64 {
	f.sent = p.health.now()
	id, first := p.flights.add(f)
	if first {
		p.health.watch()
	}
	return id
}

// overdue is for a message that the server took and nobody confirmed.
func (p *Publisher) overdue(f *flight) (relay.Code, string) {
	text := fmt.Sprintf("unconfirmed: no PubAck for %s within %v, although the connection answers pings", f.subject, p.o.PublishTimeout)
	if why := p.doubt.trouble(p.o.PublishTimeout); why != nil {
		return why.Code, text + "; " + why.Detail
	}
	switch s := p.streams.covering(f.subject); {
	case s != nil && s.Config.NoAck:
		text += "; stream " + s.Config.Name + " has no_ack set and never acknowledges"
	case s != nil && lostQuorum(s, max(p.o.PublishTimeout/2, replicaSilence)):
		return relay.CodeNoQuorum, text + "; stream " + s.Config.Name + " has lost the majority of its replicas"
	}
	return relay.CodePublishTimeout, text + "; the message may be stored"
}

// replicaSilence is longer than a replica that lives leaves its leader without a
// word, even an idle one: they exchange heartbeats every second.
const replicaSilence = 1500 * time.Millisecond

// lostQuorum tells whether most of a stream's replicas are offline, or have been silent
// for longer than that. A leader that lost them says so only after ten seconds or
// more; until then it takes messages that it can never confirm.
func lostQuorum(s *jetstream.StreamInfo, silence time.Duration) bool {
	if s.Cluster == nil {
		return false
	}
	gone := 0
	for _, r := range s.Cluster.Replicas {
		if r.Offline || r.Active > silence {
			gone++
		}
	}
	return 2*gone > len(s.Cluster.Replicas)+1 || s.Config.Replicas > 1 && s.Cluster.Leader == ""
}
