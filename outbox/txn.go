package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// txn is an open transaction with its operation time: the database's clock,
// read once. On the writer it holds the writer slot.
type txn struct {
	op    string
	conn  *sql.Conn
	stmts *pinned   // keeps prepared statements; nil: they are not kept
	at    time.Time // operation time, whole milliseconds, UTC
	now   string    // the same in the database's form

	began time.Time // not after the operation time was read
}

const clockSQL = `SELECT strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`

// readClock sets the operation time.
func (t *txn) readClock(ctx context.Context, clock func() time.Time) error {
	if clock != nil {
		t.at = clock().UTC().Truncate(time.Millisecond)
		t.now = formatTime(t.at)
		return nil
	}
	err := t.queryRow(ctx, clockSQL).Scan(&t.now)
	if err != nil {
		return err
	}
	var ok bool
	if t.at, ok = parseTime(t.now); !ok {
		return fmt.Errorf("the database's clock says %q", t.now)
	}
	return nil
}

// exec runs a statement that returns no rows.
func (t *txn) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, s, err := t.prepared(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case s != nil:
		return s.ExecContext(ctx, args...)
	}
	return t.conn.ExecContext(ctx, query, args...)
}

// changed runs a statement and counts the rows it changed.
func (t *txn) changed(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := t.exec(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query runs a statement that returns rows.
func (t *txn) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx, s, err := t.prepared(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case s != nil:
		return s.QueryContext(ctx, args...)
	}
	return t.conn.QueryContext(ctx, query, args...)
}

// scanner is what a single row is read from.
type scanner interface{ Scan(dest ...any) error }

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// queryRow runs a statement that returns one row.
func (t *txn) queryRow(ctx context.Context, query string, args ...any) scanner {
	ctx, s, err := t.prepared(ctx, query)
	switch {
	case err != nil:
		return failedRow{err}
	case s != nil:
		return s.QueryRowContext(ctx, args...)
	}
	return t.conn.QueryRowContext(ctx, query, args...)
}

// prepared gives the kept statement of a writer transaction, and the context to
// run it on: the driver starts a goroutine for each statement whose context
// can end, which the short ones of a write do without.
func (t *txn) prepared(ctx context.Context, query string) (context.Context, *sql.Stmt, error) {
	if t.stmts == nil {
		return ctx, nil, nil
	}
	ctx = context.WithoutCancel(ctx)
	s, err := t.stmts.stmt(ctx, query)
	return ctx, s, err
}

// wrapSQL gives a driver's error the operation's name. Other errors pass.
func wrapSQL(op string, err error) error {
	if err == nil {
		return nil
	}
	var named *SQLError
	if errors.As(err, &named) {
		return err
	}
	if _, ok := codeOf(err); !ok {
		return err
	}
	return &SQLError{Op: op, Err: err}
}
