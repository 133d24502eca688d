package relay

import (
	"context"
	"errors"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

const (
	// linger is how long a finished row may wait for company before a turn is
	// taken for it, and how long claims wait for room. Nobody waits for that turn:
	// the event has been delivered. While the broker still has half a window to
	// answer, neither does the broker.
	linger     = 3 * time.Millisecond
	fullLinger = 20 * time.Millisecond
	// restFactor makes the relay leave the writer slot to others for this many
	// times as long as it held it, unless there is a backlog to drain.
	restFactor = 6
	maxRest    = 10 * time.Millisecond
	// claimRetry is the wait after a claim that could not even set bad rows
	// aside.
	claimRetry = time.Second
)

// never is later than any time that the loop waits for.
var never = time.Unix(1<<40, 0)

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// canClaim reports whether there is any point in claiming.
func (l *loop) canClaim(now time.Time) bool {
	switch {
	case l.draining, l.o.InFlight > cap(l.done): // see resize
		return false
	case l.breaker.state == open, len(l.sender.work) == cap(l.sender.work), now.Before(l.claimAt):
		return false
	case l.breaker.state == trial && l.win.unanswered > 0:
		return false
	}
	rows, bytes := l.room(len(l.win.ready), l.win.readyBytes)
	return rows > 0 && bytes > 0
}

// room is what a claim could take if n decided rows of the given bytes were
// settled first. An empty window takes one row of any size.
func (l *loop) room(n int, freed int64) (rows int, bytes int64) {
	rows = l.win.room(l.o.InFlight, n)
	bytes = l.o.InFlightBytes - l.win.bytes + freed
	if len(l.win.rows) == n {
		bytes = max(bytes, 1)
	}
	return rows, bytes
}

// nextTurn is when to take the next turn, as far as is known now.
func (l *loop) nextTurn(now time.Time) time.Time {
	at := never
	if n := len(l.win.ready); n > 0 {
		at = l.win.readySince.Add(l.linger())
		if l.win.unanswered == 0 || n >= (l.o.Batch+1)/2 {
			at = now
		}
	}
	at = earliest(at, l.renewAt)
	if l.more && l.canClaim(now) {
		at = earliest(at, l.claimTurn(now))
	}
	// A rest, and a fault's pause, hold for every turn.
	if at.Before(l.restUntil) {
		at = l.restUntil
	}
	if at.Before(l.fault.until) {
		at = l.fault.until
	}
	return at
}

// claimTurn is when to claim: at once if a whole batch has room, else a little
// later, so that a full window does not make every turn a small one.
func (l *loop) claimTurn(now time.Time) time.Time {
	rows, bytes := l.room(len(l.win.ready), l.win.readyBytes)
	enough := min(l.o.Batch, (l.o.InFlight+1)/2)
	if l.win.unanswered == 0 || rows >= enough && bytes >= l.o.InFlightBytes/4 {
		return now
	}
	return l.turned.Add(l.linger())
}

func (l *loop) linger() time.Duration {
	if 2*l.win.unanswered >= l.o.InFlight || 2*(l.win.bytes-l.win.readyBytes) >= l.o.InFlightBytes {
		return fullLinger
	}
	return linger
}

// turn settles what is decided and claims what the window then takes, in one
// writer transaction.
func (l *loop) turn(ctx context.Context, now time.Time, claiming bool) error {
	entries, settles, freed := l.collect(now)
	batch := l.batch[:0]
	for _, e := range entries {
		batch = append(batch, e.settlement)
	}
	l.batch = batch
	claim := outbox.ClaimRequest{Worker: l.o.Worker, Lease: l.o.Lease}
	if claiming {
		claim.Limit, claim.MaxBytes = l.claimSize(settles, freed)
	}
	if len(batch) == 0 && claim.Limit == 0 {
		return nil
	}
	ex, err := l.db.Exchange(ctx, batch, claim)
	end := time.Now()
	l.turned, l.looked = end, false
	l.r.busy.Store(0)
	if err != nil {
		return l.exchangeFailed(ctx, err, end)
	}
	l.m.lockTime.Observe(ex.Held.Seconds())
	until := end.Add(l.o.Lease - max(ex.Age, ex.Held))
	l.win.dropReady(settles, end)
	l.settled(entries, ex.Settled, until, end)
	if claim.Limit > 0 {
		err = l.claimed(ctx, ex, claim, until, end)
	}
	l.rest(ex.Held, end)
	if err != nil {
		return l.exchangeFailed(ctx, err, end)
	}
	l.recovered(end)
	return nil
}

// claimSize is how many rows and bytes a turn claims that settles n rows.
func (l *loop) claimSize(n int, freed int64) (int, int64) {
	rows, bytes := l.room(n, freed)
	if rows <= 0 || bytes <= 0 {
		return 0, 0
	}
	limit := min(l.o.Batch, rows)
	if l.breaker.state == trial {
		limit = min(limit, trialRows)
	}
	return limit, bytes
}

// rest leaves the writer slot to others for a while after a turn that met no
// backlog.
func (l *loop) rest(held time.Duration, now time.Time) {
	if l.more {
		l.restUntil = now
		return
	}
	l.restUntil = now.Add(min(restFactor*held, maxRest))
}

// collect gathers what a turn settles, at most a batch: renewals first, which are rare,
// then n decided rows in their order, whose events have the given bytes.
func (l *loop) collect(now time.Time) (entries []*entry, n int, bytes int64) {
	entries = l.renewals(l.entries[:0], now)
	n = min(len(l.win.ready), l.o.Batch-len(entries))
	for _, e := range l.win.ready[:n] {
		bytes += e.bytes
	}
	l.entries = append(entries, l.win.ready[:n]...)
	return l.entries, n, bytes
}

// claimed takes in a claim: each row is decided on the spot, or goes to the
// sender.
func (l *loop) claimed(ctx context.Context, ex outbox.Exchanged, claim outbox.ClaimRequest, until, now time.Time) error {
	if ex.ClaimErr != nil {
		return l.claimFailed(ctx, ex.ClaimErr, now)
	}
	l.badTurns = 0
	// A short batch may have been cut short by its bytes; the next look for due rows
	// finds out.
	l.more = len(ex.Claimed) == claim.Limit
	var out []*entry
	for i := range ex.Claimed {
		if old := l.win.rows[ex.Claimed[i].Row]; old != nil {
			// Our own earlier claim, whose lease ended before it was renewed.
			l.win.unready(old)
			l.lost(old, outbox.ErrLostClaim, now)
		}
		e := l.newEntry(&ex.Claimed[i], until)
		l.win.add(e)
		if l.address(e, &ex.Claimed[i], now) {
			l.win.handOver(e)
			out = append(out, e)
		}
	}
	if len(out) > 0 {
		l.sender.work <- handOver{entries: out, done: l.done} // has room: see canClaim
	} else {
		l.closeBreaker(now) // nothing was there to try
	}
	return nil
}

func (l *loop) newEntry(c *outbox.Claimed, until time.Time) *entry {
	e := &entry{
		row:         c.Row,
		token:       c.Token,
		attempts:    c.Attempts,
		lastFailure: Code(c.LastFailure),
		enqueuedAt:  c.EnqueuedAt,
		bytes:       eventBytes(&c.Event),
		stream:      l.m.stream(c.Event.Stream),
		streamName:  c.Event.Stream,
		routes:      l.routes,
	}
	e.until.Store(int64(until.Sub(l.r.base)))
	return e
}

// address finds the subject of a claimed row. False: it has been decided instead.
func (l *loop) address(e *entry, c *outbox.Claimed, now time.Time) bool {
	if l.stored.has(e.row) {
		// Published under an earlier claim, which was lost before it could be
		// recorded.
		e.accepted = true
		l.win.decide(e, outbox.Settlement{Action: outbox.Ack}, now)
		return false
	}
	if _, ok := l.win.late[e.row]; ok {
		l.failed(e, Result{Code: CodeInProcess, Detail: "an earlier publish of this event is still unanswered"}, now)
		return false
	}
	if c.Reclaimed && l.crashLoop(e, now) {
		return false
	}
	i := l.o.Routes.Match(c.Event.Tenant, c.Event.Stream)
	if i < 0 {
		l.unroutedRow(e, now)
		return false
	}
	subject, err := l.o.Routes.Subject(i, &c.Event)
	if err != nil {
		e.stream.result(Rejected.String()).Inc()
		l.quarantine(e, CodeInvalidSubject, err.Error(), now)
		return false
	}
	e.pause = pauseKey{route: i, subject: subject}
	if !l.admit(e, now) {
		return false
	}
	e.event = c.Event
	e.msg = Message{Row: e.row, Subject: subject, ExpectStream: l.o.Routes.At(i).ExpectStream}
	return true
}

// crashLoop decides a row that was taken from an expired lease more often than
// it may be tried. True: it is decided. Its workers died of it or hung, unless what it last
// suffered was the broker's or a route's fault: then one crash says nothing.
func (l *loop) crashLoop(e *entry, now time.Time) bool {
	limit := int64(l.o.MaxAttempts)
	if limit == 0 || e.attempts <= limit {
		return false
	}
	switch {
	case e.lastFailure == "", e.lastFailure == CodeLeaseExpired, e.lastFailure.Class() == Failed:
		l.quarantine(e, CodeCrashLoop, "every worker that claimed it stopped or hung before it was settled", now)
	default:
		l.retry(e, CodeLeaseExpired, "its last claim's lease ran out", l.o.Backoff.delay(e.attempts), now)
	}
	return true
}

// claimFailed takes in a claim's own error. Bad rows are set aside at once, and
// the next turn goes on behind them.
func (l *loop) claimFailed(ctx context.Context, err error, now time.Time) error {
	var bad *outbox.BadRowsError
	if !errors.As(err, &bad) {
		return err
	}
	rows, err := l.db.SetAside(ctx, bad.Rows)
	if err != nil {
		return err
	}
	aside := make(map[int64]bool, len(rows))
	for _, row := range rows {
		aside[row] = true
	}
	for _, b := range bad.Rows {
		if aside[b.Row] {
			l.quarantined(now, Code(b.Code), b.Row, "", b.Code+": "+b.Err.Error())
		}
	}
	l.more = true
	l.badTurns++
	if len(rows) > 0 {
		l.badTurns = 0
	} else if l.badTurns >= 3 {
		// Somebody else took them each time, or nobody can: do not spin.
		l.claimAt = now.Add(claimRetry)
	}
	return nil
}
