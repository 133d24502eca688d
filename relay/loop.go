package relay

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/outbox"
)

// tick is how often the loop tends what needs no haste.
const tick = time.Second

// loop is the goroutine that owns the window. Nothing in it is shared but the
// entries that the sender has.
type loop struct {
	r   *Relay
	o   Options // with the current settings
	db  Outbox
	log zerolog.Logger
	m   *Metrics

	win    window
	stored storedRows
	done   chan Result // has room for every row in flight
	sender sender

	connected bool // once

	more    bool      // a claim is likely to find rows
	looked  bool      // nothing is due as far as the last look and the waker know
	claimAt time.Time // no claim before

	turned    time.Time // end of the last turn
	restUntil time.Time
	renewAt   time.Time // next look for leases to renew
	tickAt    time.Time
	badTurns  int // turns in a row in which a claim failed and no row could be set aside

	breaker  breaker
	pauses   pauses
	routes   int // generation
	waker    waker
	fault    dbFault
	notes    notes
	draining bool

	entries []*entry            // of the turn
	batch   []outbox.Settlement // likewise
	timer   *time.Timer
	wg      sync.WaitGroup
}

func newLoop(r *Relay) *loop {
	o := r.o
	return &loop{
		r: r, o: o, db: r.db, log: o.Log, m: o.Metrics,
		win:  newWindow(),
		done: make(chan Result, o.InFlight),
		sender: sender{
			pub: o.Publisher, base: r.base, isolated: o.IsolatedIDs,
			work: make(chan handOver, maxHandedOver),
		},
		more:    true,
		breaker: newBreaker(o.Backoff),
		pauses:  newPauses(),
		waker:   newWaker(),
		notes:   newNotes(o.Log),
		timer:   time.NewTimer(0),
	}
}

// run relays until ctx ends, and drains.
func (l *loop) run(ctx context.Context) error {
	// hard outlives ctx, for what has to be finished after it; a final fault ends both.
	hard, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	soft, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(hard, func() { stop(context.Cause(hard)) })()

	l.start(hard, soft, fail)
	err := l.relay(soft)
	stopped := time.Now()
	stop(nil)
	if err == nil && hard.Err() == nil {
		err = l.drain(hard, stopped)
	}
	if hard.Err() != nil {
		err = context.Cause(hard)
	}
	fail(nil)
	l.finish(stopped.Add(l.o.Drain))
	return err
}

func (l *loop) start(hard, soft context.Context, fail context.CancelCauseFunc) {
	w, err := l.o.Watch(l.db.Path())
	if err != nil {
		l.log.Warn().Err(err).Dur("poll_ms", l.o.Poll).Msg("database file cannot be watched; it is polled instead")
	} else {
		l.waker.watch = w
	}
	l.wg.Go(func() { l.sender.run(hard) })
	l.wg.Go(func() { l.watchIdentity(hard, fail) })
	l.wg.Go(func() { l.countRows(soft) })
	l.wg.Go(func() { l.pruneOldRows(soft) })
}

// finish waits for the other goroutines, but not past deadline: one may hang
// in a socket.
func (l *loop) finish(deadline time.Time) {
	l.waker.close()
	if l.waker.watch != nil {
		l.waker.watch.Close()
	}
	l.timer.Stop()
	ended := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(ended)
	}()
	patience := time.NewTimer(max(time.Until(deadline), 100*time.Millisecond))
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	}
}

// relay takes turns until ctx ends. An error is final.
func (l *loop) relay(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step takes a turn, or waits until there may be one to take.
func (l *loop) step(ctx context.Context) error {
	now := time.Now()
	l.progress(now)
	l.takeSettings()
	l.takeResults(now)
	l.tendBreaker(ctx, now)
	l.tend(now)
	l.watchConnection(now)
	if err := l.lookIfIdle(ctx, now); err != nil {
		return l.exchangeFailed(ctx, err, now)
	}
	at := l.nextTurn(now)
	if at.After(now) {
		l.wait(ctx, now, at)
		return nil
	}
	// Since the slot is taken anyway, a turn that settles also claims. After a
	// fault it settles first.
	claiming := l.canClaim(now) && (l.more || len(l.win.ready) > 0)
	if !l.fault.since.IsZero() && len(l.win.ready) > 0 {
		claiming = false
	}
	return l.turn(ctx, now, claiming)
}

// connectGrace is how long the first connection may take before its absence is
// an outage.
const connectGrace = time.Second

// watchConnection trips the breaker when the connection is gone. While the first
// one is being made, nothing is claimed, but nothing is wrong either.
func (l *loop) watchConnection(now time.Time) {
	if l.breaker.state == open {
		return
	}
	err := l.o.Publisher.Usable()
	switch {
	case err == nil:
		l.connected = true
	case !l.connected && codeOf(err) == CodeDisconnected && now.Sub(l.r.base) < connectGrace:
		l.claimAt = now.Add(connectPoll)
	default:
		l.trip(now, codeOf(err), err.Error())
	}
}

// connectPoll is how often the loop looks for the first connection.
const connectPoll = 10 * time.Millisecond

// lookIfIdle finds out what is due when a claim would have room and nothing is
// known to be due.
func (l *loop) lookIfIdle(ctx context.Context, now time.Time) error {
	if l.more || !l.canClaim(now) || now.Before(l.fault.until) {
		return nil
	}
	if l.looked {
		l.wakeUp(ctx, now)
	}
	if l.looked {
		return nil
	}
	return l.look(ctx, now)
}

// wait sleeps until something happens, or at.
func (l *loop) wait(ctx context.Context, now, at time.Time) {
	at = earliest(at, l.tickAt)
	var events <-chan struct{}
	switch {
	case l.draining, l.breaker.probing:
	case l.breaker.state == open:
		at = earliest(at, earliest(l.breaker.lookAt, l.breaker.probeAt))
	case now.Before(l.fault.until):
		at = earliest(at, l.fault.until)
	case now.Before(l.claimAt):
		at = earliest(at, l.claimAt)
	case !l.more && l.canClaim(now):
		at = earliest(at, l.waker.next())
		events = l.waker.events()
	}
	l.idle(now, at)
	l.timer.Reset(max(at.Sub(now), 0))
	select {
	case <-ctx.Done():
	case res := <-l.done:
		l.result(res, time.Now())
	case <-events:
		l.waker.noticed(time.Now())
	case err := <-l.breaker.answers:
		l.probed(time.Now(), err)
	case <-l.r.kick:
	case <-l.timer.C:
	}
}

// takeResults takes in the results that are there.
func (l *loop) takeResults(now time.Time) {
	for range cap(l.done) {
		select {
		case res := <-l.done:
			l.result(res, now)
		default:
			return
		}
	}
}

// takeSettings applies a reload.
func (l *loop) takeSettings() {
	if s := l.r.takeReload(); s != nil {
		if s.Routes == nil {
			s.Routes = l.o.Routes
		}
		l.o.apply(*s)
		l.breaker.cadence = newCadence(l.o.Backoff)
		l.pauses = newPauses()
		l.routes++
		l.log.Info().Int("routes", l.o.Routes.Len()).Msg("settings reloaded")
	}
	l.resize()
}

// resize makes room for the results of a larger window. Claims wait until the
// old channel is unused, which takes no longer than a publish.
func (l *loop) resize() {
	if l.o.InFlight > cap(l.done) && l.win.unanswered == 0 && len(l.win.late) == 0 {
		l.done = make(chan Result, l.o.InFlight)
	}
}

// tend does what needs no haste.
func (l *loop) tend(now time.Time) {
	if now.Before(l.tickAt) {
		return
	}
	l.tickAt = now.Add(tick)
	l.tendPauses(now)
	l.notes.flush(now)
	l.r.status.update(l, now)
}

// routeLabel is how route i is named in metrics and logs.
func (l *loop) routeLabel(i int) string { return l.o.Routes.At(i).Subject }

// progress records that the loop runs.
func (l *loop) progress(now time.Time) {
	l.r.idleUntil.Store(0)
	l.r.inFlight.Store(int64(len(l.win.rows)))
	l.m.inFlight.Set(float64(len(l.win.rows)))
	l.r.progress.Store(int64(now.Sub(l.r.base)))
}

// idle records that the loop rightly does nothing until at.
func (l *loop) idle(now, at time.Time) {
	l.progress(now)
	l.r.idleUntil.Store(int64(at.Sub(l.r.base)))
}
