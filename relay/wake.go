package relay

import (
	"context"
	"time"
)

// waker notices commits while the relay has nothing to do, without the writer
// slot.
//
// A look reads the commit counter first and then asks what is due. Whatever is
// committed after the look therefore changes the counter, and no commit can
// slip between the two. The counter is read again at each file event, a few
// times after it, and at the latest when Options.Poll has passed, so that a lost event costs
// no more than that.
type waker struct {
	watch   Watcher // nil: poll only
	commits Commits // nil: none open
	version int64

	event   time.Time // of the running series of probes
	step    int       // next of probeSteps; len: none
	probed  time.Time // last reading of the counter
	dueAt   time.Time // when the next row is due; never: none is
	pollAt  time.Time // the next look in any case
	retryAt time.Time // the next attempt to open commits
}

func newWaker() waker { return waker{step: len(probeSteps), dueAt: never} }

func (w *waker) events() <-chan struct{} {
	if w.watch == nil {
		return nil
	}
	return w.watch.Events()
}

// noticed starts a series of probes after a file event.
func (w *waker) noticed(now time.Time) {
	w.event, w.step = now, 0
	if now.Sub(w.probed) < minProbeGap {
		w.step = 1
	}
}

// next is when to probe or look.
func (w *waker) next() time.Time {
	at := earliest(w.pollAt, w.dueAt)
	if w.step < len(probeSteps) {
		at = earliest(at, w.event.Add(probeSteps[w.step]))
	}
	return at
}

// look finds out whether anything is due. It is called when a claim would have
// room, and nothing is known to be due.
func (l *loop) look(ctx context.Context, now time.Time) error {
	w := &l.waker
	w.pollAt = now.Add(l.o.Poll)
	w.readVersion(ctx, l.db, now)
	due, err := l.db.Due(ctx)
	if err != nil {
		return err
	}
	l.looked = true
	w.dueAt = never
	switch {
	case due.Ready:
		l.more = true
	case !due.Next.IsZero():
		// The database's clock gives a distance, the monotonic clock keeps it.
		// A clock that is set meanwhile is found out by the poll.
		w.dueAt = now.Add(max(due.Next.Sub(due.Now), time.Millisecond))
	}
	if !l.more {
		l.closeBreaker(now) // nothing is there to try
		if len(l.win.ready) == 0 {
			l.recovered(now) // nor to write
		}
	}
	return nil
}

// wakeUp reads the commit counter if it is time to, and forgets the last look if
// that is out of date.
func (l *loop) wakeUp(ctx context.Context, now time.Time) {
	w := &l.waker
	if !now.Before(w.pollAt) || !now.Before(w.dueAt) {
		l.looked = false
		return
	}
	if w.step == len(probeSteps) || now.Before(w.event.Add(probeSteps[w.step])) {
		return
	}
	for w.step < len(probeSteps) && !now.Before(w.event.Add(probeSteps[w.step])) {
		w.step++
	}
	// The series goes on after a change: the event that began it may have been
	// that of the next commit.
	if w.readVersion(ctx, l.db, now) {
		l.looked = false
	}
}

// readVersion reports whether the counter has changed since it was last read, or
// cannot be read.
func (w *waker) readVersion(ctx context.Context, db Outbox, now time.Time) bool {
	w.probed = now
	if w.commits == nil {
		if now.Before(w.retryAt) {
			return true
		}
		c, err := db.Commits(ctx)
		if err != nil {
			w.retryAt = now.Add(time.Second)
			return true
		}
		w.commits = c
	}
	v, err := w.commits.Version(ctx)
	if err != nil {
		w.close()
		return true
	}
	changed := v != w.version
	w.version = v
	return changed
}

func (w *waker) close() {
	if w.commits != nil {
		w.commits.Close()
		w.commits = nil
	}
}
