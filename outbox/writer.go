package outbox

import (
	"context"
	"database/sql/driver"
	"time"
)

// writer is the one connection of a Store that writes.
type writer struct {
	*pinned
	policy busyPolicy
	clock  func() time.Time // nil: the database's
	// ownsLog: SQLite does not checkpoint on this connection, the writer does.
	ownsLog bool
	usesLog bool // write-ahead: readers and the writer do not wait for each other
	longLog int  // frames from which the log is restarted; see restartLog
}

func newWriter(c driver.Connector, p busyPolicy, clock func() time.Time) *writer {
	return &writer{pinned: pin(c), policy: p, clock: clock}
}

// write runs fn in one BEGIN IMMEDIATE transaction and commits it. Any error
// of fn rolls it back. A busy database makes it run fn again from the start, up to the
// policy's retries; so fn must set its results anew each time. The time is how
// long the writer slot was held by the try that succeeded.
//
// Inside fn, statements run on a context that is not cancelled, for they are
// short; fn looks at the context it is given between them where it has many.
func (w *writer) write(ctx context.Context, op string, fn func(context.Context, *txn) error) (time.Duration, error) {
	if err := w.acquire(ctx); err != nil {
		return 0, err
	}
	defer w.release()
	wait := w.policy.begin()
	for {
		held, err := w.try(ctx, op, wait, fn)
		if err == nil && w.ownsLog {
			w.checkpoint(ctx)
		}
		if FaultOf(err) != FaultBusy {
			return held, wrapSQL(op, err)
		}
		wait.err = err
		if !wait.again() {
			return 0, wait.exhausted(op)
		}
	}
}

// try is one transaction from BEGIN to its end.
func (w *writer) try(ctx context.Context, op string, wait *busyWait, fn func(context.Context, *txn) error) (time.Duration, error) {
	if err := w.connect(ctx); err != nil {
		return 0, err
	}
	if err := w.begin(ctx, wait); err != nil {
		return 0, err
	}
	began := time.Now()
	t := &txn{op: op, conn: w.conn, stmts: w.pinned, began: began}
	err := t.readClock(ctx, w.clock)
	if err == nil {
		err = fn(ctx, t)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = w.commit(ctx, wait)
	}
	if err != nil {
		w.rollback(ctx, err)
		return 0, err
	}
	return time.Since(began), nil
}

const (
	beginSQL    = `BEGIN IMMEDIATE`
	commitSQL   = `COMMIT`
	rollbackSQL = `ROLLBACK`
)

// begin takes the writer slot, trying again within this try's time.
func (w *writer) begin(ctx context.Context, wait *busyWait) error {
	for {
		if err := ctx.Err(); err != nil {
			return wait.ended(err)
		}
		err := w.exec(ctx, beginSQL)
		if FaultOf(err) != FaultBusy {
			if err != nil {
				w.drop()
			}
			return err
		}
		more, stop := wait.sleep(ctx, err)
		if stop != nil {
			return stop
		}
		if !more {
			return err
		}
	}
}

// commit commits. In rollback-journal mode it may have to wait for readers, and
// is tried again within this try's time.
func (w *writer) commit(ctx context.Context, wait *busyWait) error {
	for {
		err := w.exec(ctx, commitSQL)
		if FaultOf(err) != FaultBusy {
			return err
		}
		more, stop := wait.sleep(ctx, err)
		if stop != nil {
			return stop
		}
		if !more {
			return err
		}
	}
}

// rollback undoes what is open after the error cause. If it cannot, or if
// cause is about the file itself, the connection goes, and the transaction with
// it.
func (w *writer) rollback(ctx context.Context, cause error) {
	err := w.exec(ctx, rollbackSQL)
	switch FaultOf(cause) {
	case FaultIO, FaultReadOnly, FaultDamaged:
		w.drop()
	default:
		if err != nil {
			w.drop()
		}
	}
}
