package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// Waits between two tries for the writer slot: a thousandth of the time waited
// so far, within these bounds, jittered. SQLite's own handler sleeps ever longer, up
// to 100 ms, and so never gets a turn beside an app that commits flat out.
const (
	minPause = 100 * time.Microsecond
	maxPause = 3 * time.Millisecond
)

// busyPolicy is how an operation waits for the writer slot.
type busyPolicy struct {
	timeout time.Duration       // of one try
	retries int                 // whole operations after the first
	onBusy  func(time.Duration) // may be nil
}

// busyWait is the waiting of one operation.
type busyWait struct {
	policy  *busyPolicy
	started time.Time // of the operation
	until   time.Time // end of this try
	tries   int
	err     error // the last busy error
}

func (p *busyPolicy) begin() *busyWait {
	w := &busyWait{policy: p, started: time.Now()}
	w.startTry()
	return w
}

func (w *busyWait) startTry() {
	w.tries++
	w.until = time.Now().Add(w.policy.timeout)
}

// sleep waits a little after the busy error err. False: this try's time is up.
func (w *busyWait) sleep(ctx context.Context, err error) (bool, error) {
	w.err = err
	now := time.Now()
	waited := now.Sub(w.started)
	if w.policy.onBusy != nil {
		w.policy.onBusy(waited)
	}
	left := w.until.Sub(now)
	if left <= 0 {
		return false, nil
	}
	pause := min(max(waited/1000, minPause), maxPause)
	// Between one and three pauses, so that two waiters fall out of step.
	t := time.NewTimer(min(pause+rand.N(2*pause), left))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false, w.ended(ctx.Err())
	case <-t.C:
		return true, nil
	}
}

// ended is the error of a context that ended, with what was waited for until then.
func (w *busyWait) ended(cause error) error {
	if w.err == nil {
		return cause
	}
	return fmt.Errorf("%w while the writer slot was taken: %w", cause, w.err)
}

// again starts the next whole try, or reports that there is none left.
func (w *busyWait) again() bool {
	if w.tries > w.policy.retries {
		return false
	}
	w.startTry()
	return true
}

func (w *busyWait) exhausted(op string) error {
	return &SQLError{Op: op, Err: fmt.Errorf("%w for %v in %d tries: %w",
		ErrBusyExhausted, time.Since(w.started).Round(time.Millisecond), w.tries, w.err)}
}
