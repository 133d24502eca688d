package relay

import (
	"context"
	"math/rand/v2"
	"time"
)

// breakerState is where the breaker stands.
type breakerState uint8

const (
	closed breakerState = iota // rows are claimed
	open                       // nothing is claimed; probes
	trial                      // the probe succeeded: a few rows show whether publishing does too
)

const (
	// trialRows are claimed to try out a broker that answered its probe.
	trialRows = 8
	// probeTimeout bounds one probe.
	probeTimeout = 5 * time.Second
	// steady is how long a broker has to be usable for its next outage to begin without
	// a rest; minRest and maxCadence bound a rest.
	steady  = 10 * time.Second
	minRest = time.Second
	// usablePoll is how often an open breaker looks whether the connection is
	// back; the look costs nothing.
	usablePoll = 100 * time.Millisecond
)

// breaker keeps the relay from claiming what the broker cannot take. An
// unavailable result or a lost connection opens it. Then the broker is probed
// on the backoff's cadence, and at once when the connection returns. A probe that
// succeeds lets a few rows through; the first of them that gets an answer of its own
// closes the breaker, one that finds the broker unavailable opens it again.
//
// A broker that is usable only for moments would be tried, and logged, at the rate at
// which connections break. So an outage that comes soon after the one before it begins
// with a rest, in which a connection that returns is not used. The rest grows while the
// broker is usable for less time than that, and shrinks again otherwise.
type breaker struct {
	state    breakerState
	since    time.Time // when it opened
	passed   time.Time // when the last probe succeeded
	closedAt time.Time
	code     Code
	why      string
	cadence  cadence
	rest     time.Duration // of the last outage
	resting  time.Time     // no probe before

	probeAt   time.Time // the next probe
	lookAt    time.Time // the next look at the connection
	connected bool      // at the last look
	probing   bool
	answers   chan error // capacity 1: one probe at a time

	probes, released, unanswered int // since it opened, for the log
}

func newBreaker(b Backoff) breaker {
	return breaker{cadence: newCadence(b), answers: make(chan error, 1)}
}

// begin puts the first probe off, at the beginning of an outage after the broker was
// usable for the given time.
func (b *breaker) begin(now time.Time, usable time.Duration) {
	switch {
	case usable >= steady:
		b.rest = 0
	case usable < max(b.rest, minRest):
		b.rest = min(max(2*b.rest, minRest), maxCadence)
	default:
		b.rest = max(b.rest/2, minRest)
	}
	b.resting = now.Add(b.rest*4/5 + rand.N(b.rest/5+1))
}

// probeLater puts the next probe off by the cadence.
func (b *breaker) probeLater(now time.Time) { b.probeAt = latest(now.Add(b.cadence.next()), b.resting) }

// trip opens the breaker because of what was found at now. Rows that the sender
// has not begun are taken back.
func (l *loop) trip(now time.Time, code Code, why string) {
	b := &l.breaker
	if b.state == open {
		return
	}
	news := b.state == closed
	b.state = open
	b.connected = l.o.Publisher.Usable() == nil
	switch {
	case news:
		b.since, b.code, b.why = now, code, why
		b.probes, b.released, b.unanswered = 0, 0, 0
		b.cadence.reset()
		b.begin(now, now.Sub(b.closedAt))
		l.m.breakerOpen.Set(1)
	case !b.connected: // the trial broke it
		b.begin(now, now.Sub(b.passed))
	}
	l.tickAt = now
	b.lookAt = now.Add(usablePoll)
	b.probeLater(now)
	l.takeBackQueued(now)
	if news {
		l.log.Warn().Str("breaker", "open").Str("code", string(code)).Str("detail", why).
			Int("released", b.released).Int("in_flight", l.win.unanswered).
			Msg("broker unavailable; nothing is claimed until it can be published to again")
	}
}

// takeBackQueued releases every row that the sender has not begun.
func (l *loop) takeBackQueued(now time.Time) {
	for _, e := range l.win.rows {
		if e.unanswered && e.takeBack() {
			l.win.answered(e)
			l.release(e, now)
		}
	}
}

// tendBreaker probes when it is time to, and takes in a probe's answer.
func (l *loop) tendBreaker(ctx context.Context, now time.Time) {
	b := &l.breaker
	select {
	case err := <-b.answers:
		l.probed(now, err)
	default:
	}
	if b.state != open || b.probing {
		return
	}
	if !now.Before(b.lookAt) {
		b.lookAt = now.Add(usablePoll)
		err := l.o.Publisher.Usable()
		usable := err == nil
		if !usable { // the reason may have changed, from a lost connection to refused credentials
			b.code, b.why = codeOf(err), err.Error()
		}
		if usable && !b.connected {
			b.cadence.reset()
			b.probeAt = latest(now, b.resting)
		}
		b.connected = usable
	}
	if now.Before(b.probeAt) {
		return
	}
	b.probes++
	if !b.connected {
		b.probeLater(now)
		return
	}
	b.probing = true
	l.probe(ctx)
}

func (l *loop) probe(ctx context.Context) {
	answers, pub := l.breaker.answers, l.o.Publisher
	l.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		answers <- pub.Probe(ctx)
	})
}

func (l *loop) probed(now time.Time, err error) {
	b := &l.breaker
	b.probing = false
	if b.state != open {
		return
	}
	if err != nil {
		b.why = err.Error()
		b.probeLater(now)
		return
	}
	b.state, b.passed = trial, now
	l.more, l.looked = false, false
}

// closeBreaker ends the outage: a row got an answer of its own, or nothing is
// due that could be tried.
func (l *loop) closeBreaker(now time.Time) {
	b := &l.breaker
	if b.state != trial {
		return
	}
	b.state, b.closedAt = closed, now
	l.tickAt = now
	l.m.breakerOpen.Set(0)
	l.log.Info().Str("breaker", "closed").Dur("outage_ms", now.Sub(b.since)).Int("probes", b.probes).
		Int("released", b.released).Int("unanswered", b.unanswered).
		Int64("backlog", l.r.status.backlog()).Msg("broker usable again")
}

// unavailable takes in a result of that class.
func (l *loop) unavailable(e *entry, res Result, now time.Time) {
	// The result of a publish that began before the last probe succeeded says nothing
	// new.
	if !e.sentAt.Before(l.breaker.passed) {
		l.trip(now, res.Code, res.Detail)
	}
	if !res.Sent {
		l.release(e, now)
		return
	}
	l.breaker.unanswered++
	code := res.Code
	if code == "" {
		code = CodeUnanswered
	}
	l.retry(e, code, res.Detail, min(l.o.Backoff.delay(e.attempts), maxCadence), now)
}
