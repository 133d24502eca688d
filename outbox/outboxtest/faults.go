package outboxtest

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"

	"modernc.org/sqlite"
)

// Result codes of SQLite that a Faults can give.
const (
	Busy         = 5
	IOError      = 10
	Corrupt      = 11
	Full         = 13
	BusyRecovery = 261
	BusySnapshot = 517
	BusyTimeout  = 773
)

// Error is a driver's error with a result code, as the real driver's has one.
type Error struct{ code int }

func (e *Error) Error() string { return fmt.Sprintf("injected fault (%d)", e.code) }

// Code is SQLite's result code.
func (e *Error) Code() int { return e.code }

// Faults makes connections that count every step they take (preparing,
// executing, querying, reading a row) and fail one of them. The zero value fails
// none. Pass its Connector as outbox.Options.Driver.
type Faults struct {
	mu     sync.Mutex
	steps  int
	failAt int
	last   int
	code   int
	after  bool
	query  string // part of the statements that fail, if not ""
	log    []string
	before func(query string, run func(query string) error)
}

// FailAt makes the nth step from now fail with code, without being taken.
func (f *Faults) FailAt(n, code int) { f.arm(n, n, code, false) }

// FailAfter lets the nth step from now be taken, and then report code.
func (f *Faults) FailAfter(n, code int) { f.arm(n, n, code, true) }

// FailFrom makes the nth step from now fail and every one after it, until the
// next call of a method of this kind.
func (f *Faults) FailFrom(n, code int) { f.arm(n, 1<<62, code, false) }

// FailQuery makes every step of a statement that contains part fail with code.
func (f *Faults) FailQuery(part string, code int) {
	f.arm(0, 0, code, false)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.query = part
}

// Disarm fails nothing more. It returns the steps taken since the last arming.
func (f *Faults) Disarm() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.steps
	f.steps, f.failAt, f.last, f.query = 0, 0, 0, ""
	return n
}

func (f *Faults) arm(n, last, code int, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps, f.failAt, f.last, f.code, f.after, f.query, f.log = 0, n, last, code, after, "", nil
}

// Log has the steps since the last arming, one a line.
func (f *Faults) Log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, "\n")
}

// Before calls fn before each statement is executed or queried; run executes
// another statement on the same connection. Nil ends it.
func (f *Faults) Before(fn func(query string, run func(query string) error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = fn
}

// step counts a step and reports whether it fails: before it is taken, or after.
func (f *Faults) step(name, query string) (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps++
	f.log = append(f.log, fmt.Sprintf("%d %s %s", f.steps, name, strings.Join(strings.Fields(query), " ")))
	if f.query != "" && strings.Contains(query, f.query) {
		return &Error{f.code}, nil
	}
	if f.failAt == 0 || f.steps < f.failAt || f.steps > f.last {
		return nil, nil
	}
	if f.after {
		return nil, &Error{f.code}
	}
	return &Error{f.code}, nil
}

func (f *Faults) hook(c driver.Conn, query string) {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before == nil {
		return
	}
	before(query, func(query string) error {
		_, err := c.(driver.ExecerContext).ExecContext(context.Background(), query, nil)
		return err
	})
}

// Connector makes connections of the real driver that can fail.
func (f *Faults) Connector(dsn string) (driver.Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	return connector{c, f}, nil
}

type connector struct {
	driver.Connector
	f *Faults
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	before, after := c.f.step("connect", "")
	if before != nil {
		return nil, before
	}
	real, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if after != nil {
		real.Close()
		return nil, after
	}
	return &conn{real, c.f}, nil
}

// conn forwards every optional interface that database/sql asks for.
type conn struct {
	driver.Conn
	f *Faults
}

func (c *conn) Unwrap() driver.Conn { return c.Conn }

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c *conn) Ping(ctx context.Context) error { return c.Conn.(driver.Pinger).Ping(ctx) }
func (c *conn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}
func (c *conn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	before, after := c.f.step("prepare", query)
	if before != nil {
		return nil, before
	}
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if after != nil {
		s.Close()
		return nil, after
	}
	return &stmt{s, c, query}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(query, func() (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	})
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(query, func() (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	})
}

func (c *conn) exec(query string, run func() (driver.Result, error)) (driver.Result, error) {
	before, after := c.f.step("exec", query)
	if before != nil {
		return nil, before
	}
	c.f.hook(c.Conn, query)
	r, err := run()
	if err == nil && after != nil {
		return nil, after
	}
	return r, err
}

func (c *conn) query(query string, run func() (driver.Rows, error)) (driver.Rows, error) {
	before, after := c.f.step("query", query)
	if before != nil {
		return nil, before
	}
	c.f.hook(c.Conn, query)
	r, err := run()
	if err != nil {
		return nil, err
	}
	if after != nil {
		r.Close()
		return nil, after
	}
	return &rows{r, c, query}, nil
}

type stmt struct {
	driver.Stmt
	c     *conn
	query string
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.c.exec(s.query, func() (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	})
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.c.query(s.query, func() (driver.Rows, error) {
		return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	})
}

type rows struct {
	driver.Rows
	c     *conn
	query string
}

func (r *rows) Next(dest []driver.Value) error {
	before, after := r.c.f.step("next", r.query)
	if before != nil {
		return before
	}
	if err := r.Rows.Next(dest); err != nil {
		return err
	}
	return after
}
