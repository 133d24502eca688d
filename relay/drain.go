package relay

import (
	"context"
	"fmt"
	"time"
)

// maxReserve is the part of the drain that is kept for writing down what is
// known by then.
const maxReserve = 2 * time.Second

// DrainError reports rows that were still claimed when the time for draining
// was up, because the database could not be written. They are published again after their
// leases have ended.
type DrainError struct {
	Path string
	Rows int
	Err  error // what the database said last, nil if it only took too long
}

func (e *DrainError) Error() string {
	s := fmt.Sprintf("%s: stopped with %d rows left claimed; they are published again when their leases end", e.Path, e.Rows)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *DrainError) Unwrap() error { return e.Err }

// drain settles what is in flight. What the sender has not begun is released, what
// gets its answer in time is settled by it, and the rest is recorded as ambiguous. It
// ends within Options.Drain of stopped, whatever it waits for.
func (l *loop) drain(ctx context.Context, stopped time.Time) error {
	deadline := stopped.Add(l.o.Drain)
	answersBy := deadline.Add(-min(l.o.Drain/4, maxReserve))
	l.draining = true
	l.fault.until = time.Time{}
	l.takeBackQueued(stopped)
	for len(l.win.rows) > 0 && ctx.Err() == nil {
		now := time.Now()
		l.progress(now)
		l.tend(now)
		l.takeResults(now)
		limit := answersBy
		if !now.Before(answersBy) {
			limit = deadline
			l.giveUpAnswers(now)
		}
		if !now.Before(deadline) {
			return &DrainError{Path: l.db.Path(), Rows: len(l.win.rows), Err: l.fault.err}
		}
		if at := l.nextTurn(now); at.After(now) {
			l.wait(ctx, now, earliest(at, limit))
			continue
		}
		if err := l.drainTurn(ctx, now, limit); err != nil {
			return err
		}
	}
	return nil
}

// drainTurn is a turn that claims nothing and ends by limit.
func (l *loop) drainTurn(ctx context.Context, now, limit time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	l.fault.pause = minFaultPause
	return l.turn(ctx, now, false)
}

// giveUpAnswers decides the rows whose results did not come: they may have been
// stored, or not.
func (l *loop) giveUpAnswers(now time.Time) {
	for _, e := range l.win.rows {
		if e.unanswered {
			l.win.answered(e)
			l.retry(e, CodeAmbiguousOnStop, "sent, and unanswered when the relay stopped",
				min(l.o.Backoff.delay(e.attempts), maxCadence), now)
		}
	}
}
