package outbox

import (
	"context"
	"strings"
)

const (
	journalModeSQL = `PRAGMA journal_mode`
	useWALSQL      = `PRAGMA journal_mode = WAL`
)

// useWAL turns the file to write-ahead logging, which outlives the connection.
// It cannot be done inside a transaction, and needs the file for itself for a
// moment, so that two processes that start at once get in each other's way: they
// try again. Where SQLite declines (no shared memory there), the old
// mode stays, which is slower and lets readers delay writers, but is right.
func (w *writer) useWAL(ctx context.Context) error {
	const op = "set journal mode"
	if err := w.acquire(ctx); err != nil {
		return err
	}
	defer w.release()
	wait := w.policy.begin()
	for {
		err := w.tryWAL(ctx)
		if FaultOf(err) != FaultBusy {
			if err != nil {
				w.drop()
			}
			return wrapSQL(op, err)
		}
		more, stop := wait.sleep(ctx, err)
		if stop != nil {
			return stop
		}
		if !more && !wait.again() {
			return wait.exhausted(op)
		}
	}
}

func (w *writer) tryWAL(ctx context.Context) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	var mode string
	if err := w.conn.QueryRowContext(ctx, journalModeSQL).Scan(&mode); err != nil {
		return err
	}
	if !strings.EqualFold(mode, "wal") {
		if err := w.conn.QueryRowContext(ctx, useWALSQL).Scan(&mode); err != nil {
			return err
		}
	}
	w.usesLog = strings.EqualFold(mode, "wal")
	return nil
}
