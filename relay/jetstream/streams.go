package jetstream

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// refreshStreams is how often streams are looked up again, give or take a
// quarter; refreshMissing while a route has none.
const (
	refreshStreams = time.Minute
	refreshMissing = 4 * time.Second
)

// streamBook is what is known about the streams behind the routes. It serves
// the words of results and logs, never their class: a limit that an operator
// has just raised must not hold back a message, so the server decides.
type streamBook struct {
	wake  chan struct{}
	known atomic.Pointer[knownStreams]

	mu     sync.Mutex
	routes *relay.Routes
	warned map[string]bool
}

type knownStreams struct {
	streams []*jetstream.StreamInfo
	missing []string // subject templates of the routes without a stream
}

func (b *streamBook) init() {
	b.wake = make(chan struct{}, 1)
	b.warned = make(map[string]bool)
	b.known.Store(&knownStreams{})
}

// kick makes the streams be looked up soon.
func (b *streamBook) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// SetRoutes tells the publisher which subjects will be used, so that it can
// look up the streams behind them.
func (p *Publisher) SetRoutes(r *relay.Routes) {
	p.streams.mu.Lock()
	p.streams.routes = r
	p.streams.mu.Unlock()
	p.streams.kick()
}

// Missing lists the subject templates of routes behind which no stream was
// found at the last look: a stream that has been created since takes up to
// 5 s to count, one that has been removed about a minute. Empty also where
// nothing could be found out.
func (p *Publisher) Missing() []string { return p.streams.known.Load().missing }

// watchStreams looks the streams up when something may have changed, and now
// and then.
func (p *Publisher) watchStreams() {
	defer p.ended.Done()
	for {
		wait := refreshStreams
		if len(p.Missing()) > 0 {
			wait = refreshMissing
		}
		wait = wait*3/4 + rand.N(wait/2)
		select {
		case <-p.stop:
			return
		case <-p.streams.wake:
		case <-time.After(wait):
		}
		if p.Usable() == nil {
			p.lookUp()
		}
	}
}

// lookUp reads the streams behind every route. What cannot be read leaves the
// book as it is.
func (p *Publisher) lookUp() {
	b := &p.streams
	b.mu.Lock()
	routes := b.routes
	b.mu.Unlock()
	if routes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.o.PublishTimeout)
	defer cancel()
	known, seen := &knownStreams{}, make(map[string]bool)
	for i := range routes.Len() {
		found, err := p.overlapping(ctx, routes.Pattern(i))
		if err != nil {
			p.log.Debug().Err(err).Msg("cannot look up streams")
			return
		}
		if len(found) == 0 {
			known.missing = append(known.missing, routes.At(i).Subject)
		}
		for _, s := range found {
			if !seen[s.Config.Name] {
				seen[s.Config.Name] = true
				known.streams = append(known.streams, s)
			}
		}
	}
	b.known.Store(known)
	for _, s := range known.streams {
		p.warn(s)
	}
}

// warn logs, once, what makes a stream useless for an outbox.
func (p *Publisher) warn(s *jetstream.StreamInfo) {
	once := func(key, msg string) {
		key = s.Config.Name + " " + key
		p.streams.mu.Lock()
		defer p.streams.mu.Unlock()
		if !p.streams.warned[key] {
			p.streams.warned[key] = true
			p.log.Warn().Str("stream", s.Config.Name).Msg(msg)
		}
	}
	if s.Config.NoAck {
		once("no_ack", "the stream does not acknowledge (no_ack): its events can never be confirmed and will end in quarantine")
	}
	if s.Config.Sealed {
		once("sealed", "the stream is sealed: it takes no events")
	}
}

// overlapping are the streams some of whose subjects the pattern can give.
func (p *Publisher) overlapping(ctx context.Context, pattern string) ([]*jetstream.StreamInfo, error) {
	type question struct {
		Offset  int    `json:"offset"`
		Subject string `json:"subject"`
	}
	var found []*jetstream.StreamInfo
	for offset := 0; ; {
		var page struct {
			Total   int                     `json:"total"`
			Streams []*jetstream.StreamInfo `json:"streams"`
		}
		if err := p.api(ctx, "STREAM.LIST", question{offset, pattern}, &page); err != nil {
			return nil, err
		}
		for _, s := range page.Streams {
			if overlapsAny(s.Config.Subjects, pattern) {
				found = append(found, s)
			}
		}
		offset += len(page.Streams)
		if len(page.Streams) == 0 || offset >= page.Total {
			return found, nil
		}
	}
}

// named is the known stream of that name, or nil.
func (b *streamBook) named(name string) *jetstream.StreamInfo {
	for _, s := range b.known.Load().streams {
		if s.Config.Name == name {
			return s
		}
	}
	return nil
}

// covering is the known stream that takes subject, or nil.
func (b *streamBook) covering(subject string) *jetstream.StreamInfo {
	for _, s := range b.known.Load().streams {
		for _, pattern := range s.Config.Subjects {
			if subjectCovers(pattern, subject) {
				return s
			}
		}
	}
	return nil
}

func overlapsAny(subjects []string, pattern string) bool {
	for _, s := range subjects {
		if subjectsOverlap(s, pattern) {
			return true
		}
	}
	return false
}

// subjectsOverlap tells whether some subject matches both patterns.
func subjectsOverlap(a, b string) bool {
	for {
		ta, ra, moreA := strings.Cut(a, ".")
		tb, rb, moreB := strings.Cut(b, ".")
		switch {
		case ta == ">" || tb == ">":
			return true
		case ta != "*" && tb != "*" && ta != tb, moreA != moreB:
			return false
		case !moreA:
			return true
		}
		a, b = ra, rb
	}
}

// subjectCovers tells whether everything that b matches matches a too.
func subjectCovers(a, b string) bool {
	for {
		ta, ra, moreA := strings.Cut(a, ".")
		tb, rb, moreB := strings.Cut(b, ".")
		switch {
		case ta == ">":
			return true
		case tb == ">", tb == "*" && ta != "*", ta != "*" && ta != tb, moreA != moreB:
			return false
		case !moreA:
			return true
		}
		a, b = ra, rb
	}
}
