package relay

import (
	"context"
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
	// flapFactor is how many times as long as the last wait the breaker has to stay
	// closed for the next outage to count as a new one. The wait grows until the broker
	// is left alone for no more than a tenth of the time, or for maxCadence.
	flapFactor = 10
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
// which connections break. So an outage that comes soon after the one before it goes on
// with the cadence where that one left it, and a connection that returns is not used
// before the first of its waits is over.
type breaker struct {
	state    breakerState
	since    time.Time // when it opened
	passed   time.Time // when the last probe succeeded
	closedAt time.Time
	code     Code
	why      string
	cadence  cadence
	waited   time.Duration // the last wait that cadence gave
	rests    time.Time     // no probe before: the outage is one of several in a short time

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

// wait puts the next probe off.
func (b *breaker) wait(now time.Time) {
	b.waited = b.cadence.next()
	b.probeAt = now.Add(b.waited)
}

// trip opens the breaker because of what was found at now. Rows that the sender
// has not begun are taken back.
func (l *loop) trip(now time.Time, code Code, why string) {
	b := &l.breaker
	if b.state == open {
		return
	}
	news := b.state == closed
	flaps := true
	if news {
		b.since, b.code, b.why = now, code, why
		b.probes, b.released, b.unanswered = 0, 0, 0
		flaps = now.Sub(b.closedAt) < min(flapFactor*b.waited, maxCadence)
		l.m.breakerOpen.Set(1)
	}
	if !flaps {
		b.cadence.reset()
	}
	b.state = open
	l.tickAt = now
	b.connected = l.o.Publisher.Usable() == nil
	b.wait(now)
	if b.rests = (time.Time{}); flaps {
		b.rests = b.probeAt
	}
	b.lookAt = now.Add(usablePoll)
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
			if b.rests.IsZero() {
				b.cadence.reset()
			}
			if b.probeAt = now; now.Before(b.rests) {
				b.probeAt = b.rests
			}
		}
		b.connected = usable
	}
	if now.Before(b.probeAt) {
		return
	}
	b.probes++
	if !b.connected {
		b.wait(now)
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
		b.wait(now)
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
