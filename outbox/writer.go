package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// writer is the one connection of a Store that writes. It keeps its prepared
// statements. Whoever holds the slot may use it.
type writer struct {
	pool   *sql.DB
	policy busyPolicy
	clock  func() time.Time // nil: the database's
	slot   chan struct{}    // capacity 1
	conn   *sql.Conn
	stmts  map[string]*sql.Stmt
}

func newWriter(c driver.Connector, p busyPolicy, clock func() time.Time) *writer {
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(1)
	return &writer{pool: pool, policy: p, clock: clock, slot: make(chan struct{}, 1)}
}

// txn is an open transaction with its operation time: the database's clock,
// read once. On the writer it holds the writer slot.
type txn struct {
	op    string
	conn  *sql.Conn
	stmts *writer   // keeps prepared statements; nil on a read connection
	at    time.Time // operation time, whole milliseconds, UTC
	now   string    // the same in the database's form
}

// write runs fn in one BEGIN IMMEDIATE transaction and commits it. Any error
// of fn rolls it back. A busy database makes it run fn again from the start, up to the
// policy's retries; so fn must set its results anew each time. The time is how
// long the writer slot was held by the try that succeeded.
//
// Inside fn, statements run on a context that is not cancelled, for they are
// short; fn looks at the context it is given between them where it has many.
func (w *writer) write(ctx context.Context, op string, fn func(context.Context, *txn) error) (time.Duration, error) {
	select {
	case w.slot <- struct{}{}:
		defer func() { <-w.slot }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	wait := w.policy.begin()
	for {
		held, err := w.try(ctx, op, wait, fn)
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
	t := &txn{op: op, conn: w.conn, stmts: w}
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

// connect makes sure that the connection stands.
func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.pool.Conn(ctx)
	if err != nil {
		return err
	}
	w.conn, w.stmts = conn, make(map[string]*sql.Stmt)
	return nil
}

const (
	beginSQL    = `BEGIN IMMEDIATE`
	commitSQL   = `COMMIT`
	rollbackSQL = `ROLLBACK`
)

// begin takes the writer slot, trying again within this try's time.
func (w *writer) begin(ctx context.Context, wait *busyWait) error {
	for {
		err := ctx.Err()
		if err == nil {
			err = w.exec(ctx, beginSQL)
		}
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

// exec runs a statement of the transaction's frame.
func (w *writer) exec(ctx context.Context, query string) error {
	s, err := w.stmt(ctx, query)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(context.WithoutCancel(ctx))
	return err
}

// maxStmts bounds the statements kept; the library's own are fewer.
const maxStmts = 256

// stmt prepares query, or finds it prepared.
func (w *writer) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := w.stmts[query]; ok {
		return s, nil
	}
	if len(w.stmts) >= maxStmts {
		w.closeStmts()
	}
	s, err := w.conn.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	w.stmts[query] = s
	return s, nil
}

func (w *writer) closeStmts() {
	for q, s := range w.stmts {
		s.Close()
		delete(w.stmts, q)
	}
}

// drop closes the connection; the next operation opens another one.
func (w *writer) drop() {
	if w.conn == nil {
		return
	}
	w.closeStmts()
	discard(w.conn)
	w.conn = nil
}

// discard closes conn instead of giving it back to its pool.
func discard(conn *sql.Conn) {
	// The error is the one that makes the pool close it.
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

func (w *writer) close() error {
	w.slot <- struct{}{}
	defer func() { <-w.slot }()
	if w.conn != nil {
		w.closeStmts()
		w.conn.Close()
		w.conn = nil
	}
	return w.pool.Close()
}

const clockSQL = `SELECT strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')`

// readClock sets the operation time.
func (t *txn) readClock(ctx context.Context, clock func() time.Time) error {
	if clock != nil {
		t.at = clock().UTC().Truncate(time.Millisecond)
		t.now = formatStamp(t.at)
		return nil
	}
	err := t.queryRow(ctx, clockSQL).Scan(&t.now)
	if err != nil {
		return err
	}
	t.at, err = parseStamp(t.now)
	return err
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
