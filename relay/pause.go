package relay

import "time"

// A blocked result pauses what it was about: one subject of one route, because a
// route's template often leads to several streams or permissions, and the
// others must go on. A route with more than maxPausedSubjects of them is
// paused whole, so that nothing here grows with the number of subjects.
//
// A row of a paused subject cannot be left unclaimed: claims select by due time
// alone. So it is put off, which costs a claim and a retry. To keep a deep blocked
// backlog from filling every batch with rows that are put off again and again,
// put-off rows get due times one behind the other, no more than putOffRate of
// them in a second over all paused subjects, in groups that a single turn takes. However deep the backlog, the rows
// that come due in vain are a small, fixed share of what the relay can claim, and the
// price is paid at the end: after a pause the backlog comes due at that rate. A shallow backlog, which is
// the usual one, is due again right after the next probe.
//
// The probe is an ordinary row: the first that is claimed once the time for a probe
// has come. One put-off row is due exactly then, the others a little later, so that they
// find the pause ended when the probe succeeds.
const (
	maxPausedSubjects = 16
	putOffRate        = 2000                   // rows a second, all pauses together
	probeHead         = 250 * time.Millisecond // from a probe to the rows behind it
	pauseExpiry       = time.Minute            // a pause that no row needs any more ends
)

// pauseKey is what is paused: one subject of a route, or with subject "" all of
// them.
type pauseKey struct {
	route   int
	subject string
}

// pause is one pause.
type pause struct {
	key     pauseKey
	code    Code
	why     string
	since   time.Time
	seen    time.Time // when a row of it was last claimed
	cadence cadence

	probeAt time.Time // when the next row is let through
	probing bool      // one was, and is unanswered
	planned bool      // a put-off row is due at probeAt
	slot    time.Time // the next due time to give out
	putOff  int       // rows put off
}

// pauses are the pauses of the current routes.
type pauses struct {
	by       map[pauseKey]*pause
	ended    map[pauseKey]endedPause
	routes   map[int]*routePause
	changed  bool
	unrouted pause // only paces
}

// endedPause is remembered for pauseExpiry, so that what is blocked again soon
// goes on with its cadence instead of flapping at the first interval.
type endedPause struct {
	cadence cadence
	at      time.Time
}

// routePause is what is told of a route that has pauses.
type routePause struct {
	subjects int // paused ones; 0: the whole route is
	code     Code
	why      string
	since    time.Time
	putOff   int
}

func newPauses() pauses {
	return pauses{
		by:      make(map[pauseKey]*pause),
		ended:   make(map[pauseKey]endedPause),
		routes:  make(map[int]*routePause),
		changed: true,
		// It has no probe, only a time that its groups count from.
		unrouted: pause{probeAt: time.Now(), planned: true},
	}
}

// find is the pause that covers k, or nil.
func (p *pauses) find(k pauseKey) *pause {
	if len(p.by) == 0 {
		return nil
	}
	if whole := p.by[pauseKey{route: k.route}]; whole != nil {
		return whole
	}
	return p.by[k]
}

// admit decides whether e, just claimed, may be published. False: it has been put
// off.
func (l *loop) admit(e *entry, now time.Time) bool {
	p := l.pauses.find(e.pause)
	if p == nil {
		return true
	}
	p.seen = now
	if !p.probing && !now.Before(p.probeAt) {
		p.probing, e.probe = true, p
		return true
	}
	l.putOff(e, p, p.code, p.why, now)
	return false
}

// blocked takes in a blocked result.
func (l *loop) blocked(e *entry, res Result, now time.Time) {
	if e.routes != l.routes {
		// The routes have changed since; nothing is known about the new ones.
		l.retry(e, res.Code, res.Detail, min(l.o.Backoff.delay(e.attempts), maxCadence), now)
		return
	}
	p := l.pauses.find(e.pause)
	switch {
	case p == nil:
		p = l.startPause(e.pause, res, now)
	case e.probe == p:
		p.code, p.why = res.Code, res.Detail
		p.schedule(now)
	}
	e.probe = nil
	p.seen = now
	l.putOff(e, p, res.Code, res.Detail, now)
}

// schedule sets the time of the next probe.
func (p *pause) schedule(now time.Time) {
	p.probing, p.planned = false, false
	p.probeAt = now.Add(p.cadence.next())
	p.slot = p.probeAt.Add(probeHead + dueGroup)
}

// putOff retries e behind the next probe of p.
func (l *loop) putOff(e *entry, p *pause, code Code, why string, now time.Time) {
	p.putOff++
	if r := l.pauses.routes[p.key.route]; r != nil {
		r.putOff++
	}
	l.retry(e, code, why, wholeMillis(p.nextSlot(now, len(l.pauses.by)).Sub(now)), now)
}

// nextSlot gives out a due time; sharers is the number of pauses that share putOffRate.
func (p *pause) nextSlot(now time.Time, sharers int) time.Time {
	if !p.planned && p.probeAt.After(now) {
		p.planned = true
		return p.probeAt
	}
	if soonest := now.Add(probeHead + dueGroup); p.slot.Before(soonest) {
		p.slot = soonest
	}
	at := p.slot.Add(-(p.slot.Sub(p.probeAt) % dueGroup))
	p.slot = p.slot.Add(time.Duration(max(sharers, 1)) * time.Second / putOffRate)
	return at
}

func (l *loop) startPause(k pauseKey, res Result, now time.Time) *pause {
	l.pauses.changed, l.tickAt = true, now
	r := l.pauses.routes[k.route]
	if r == nil {
		r = &routePause{code: res.Code, why: res.Detail, since: now}
		l.pauses.routes[k.route] = r
		l.log.Warn().Str("route", l.routeLabel(k.route)).Str("subject", k.subject).
			Str("code", string(res.Code)).Str("detail", res.Detail).
			Msg("route paused; other routes and subjects go on")
	}
	if r.subjects == maxPausedSubjects {
		l.pauseWhole(k.route, r)
		k.subject = ""
	} else {
		r.subjects++
	}
	p := &pause{key: k, code: res.Code, why: res.Detail, since: now, cadence: newCadence(l.o.Backoff)}
	if before, ok := l.pauses.ended[k]; ok {
		p.cadence = before.cadence
		delete(l.pauses.ended, k)
	}
	p.schedule(now)
	l.pauses.by[k] = p
	return p
}

// pauseWhole drops the pauses of a route's subjects for one of them all.
func (l *loop) pauseWhole(route int, r *routePause) {
	for k := range l.pauses.by {
		if k.route == route {
			delete(l.pauses.by, k)
		}
	}
	r.subjects = 0
	l.log.Warn().Str("route", l.routeLabel(route)).Str("code", string(r.code)).
		Msgf("more than %d subjects are blocked; the whole route is paused", maxPausedSubjects)
}

// probeEnded takes in a result of a probe that is not blocked.
func (l *loop) probeEnded(e *entry, accepted bool, now time.Time) {
	p := e.probe
	if p == nil {
		return
	}
	e.probe = nil
	p.probing = false // the next row is the probe, unless this one ended the pause
	if accepted && l.pauses.by[p.key] == p {
		l.endPause(p, now)
	}
}

func (l *loop) endPause(p *pause, now time.Time) {
	l.pauses.changed, l.tickAt = true, now
	delete(l.pauses.by, p.key)
	l.pauses.ended[p.key] = endedPause{cadence: p.cadence, at: now}
	r := l.pauses.routes[p.key.route]
	if r == nil {
		return
	}
	r.subjects = max(r.subjects-1, 0)
	if r.subjects > 0 {
		return
	}
	delete(l.pauses.routes, p.key.route)
	l.log.Info().Str("route", l.routeLabel(p.key.route)).Dur("paused_ms", now.Sub(r.since)).
		Int("put_off", r.putOff).Msg("route resumed")
}

// tendPauses ends pauses that no row has asked about for long after their probe was
// due: whatever was blocked is gone.
func (l *loop) tendPauses(now time.Time) {
	for _, p := range l.pauses.by {
		if !p.probing && now.Sub(p.probeAt) > pauseExpiry && now.Sub(p.seen) > pauseExpiry {
			l.endPause(p, now)
		}
	}
	for k, e := range l.pauses.ended {
		if now.Sub(e.at) > pauseExpiry {
			delete(l.pauses.ended, k)
		}
	}
}

// unroutedRow takes in a row that no route matches.
func (l *loop) unroutedRow(e *entry, now time.Time) {
	l.r.status.sawUnrouted(now)
	l.notes.note(now, noteUnrouted, CodeUnrouted, e.row, "stream "+e.streamName)
	e.stream.result(resultUnrouted).Inc()
	const why = "no [[route]] matches the event's stream and tenant"
	if l.o.Unrouted == UnroutedQuarantine {
		l.quarantine(e, CodeUnrouted, why, now)
		return
	}
	// Paced like rows of a paused route, for the same reason.
	p := &l.pauses.unrouted
	at := p.nextSlot(now, len(l.pauses.by)+1)
	backoff := min(l.o.Backoff.delay(e.attempts), maxCadence)
	l.retry(e, CodeUnrouted, why, max(backoff, wholeMillis(at.Sub(now))), now)
}
