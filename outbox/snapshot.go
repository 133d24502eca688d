package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// SnapshotOptions bound a snapshot. Zero means 10,000 pages and one minute.
type SnapshotOptions struct {
	After    int64 // row id >
	PageSize int   // 1..1000; 0 means 500
	MaxPages int
	MaxTime  time.Duration
}

// Defaults and bounds of a snapshot.
const (
	snapshotPageSize = 500
	snapshotMaxPages = 10_000
	snapshotMaxTime  = time.Minute
	// A page ends early once its data has this many bytes.
	snapshotPageBytes = 8 << 20
)

// ErrSnapshotClosed reports a page of a snapshot that was closed before its end.
var ErrSnapshotClosed = errors.New("snapshot is closed")

// Snapshot pages one read transaction up to an upper bound recorded after it
// began. All of its pages show the same moment, whatever commits meanwhile. It
// releases the transaction on completion, when its context or its time ends, on
// any error and on Close. While it is open, SQLite cannot reuse the write-ahead
// log, so it should be neither open longer than needed nor left open.
//
// It is safe for concurrent use; each page goes to one caller.
type Snapshot struct {
	handle  *Handle
	options SnapshotOptions
	ctx     context.Context // ends with the caller's, or with the time budget
	cancel  context.CancelCauseFunc
	stop    func() bool // the release at the end of ctx

	mu     sync.Mutex
	pool   *sql.DB // nil: released
	conn   *sql.Conn
	upper  int64
	cursor int64
	pages  int
	end    error // why there is no further page
}

// Snapshot begins one. The transaction has a connection of its own. It ends with
// ctx, which therefore bounds the whole of it.
func (h *Handle) Snapshot(ctx context.Context, o SnapshotOptions) (*Snapshot, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	timed, stopTimer := context.WithTimeoutCause(ctx, o.MaxTime, ErrSnapshotBudget)
	inner, cancel := context.WithCancelCause(timed)
	s := &Snapshot{
		handle: h, options: o, cursor: o.After, ctx: inner,
		cancel: func(cause error) { cancel(cause); stopTimer() },
	}
	if err := s.begin(); err != nil {
		s.finish(err)
		return nil, readError("begin snapshot", err)
	}
	s.stop = context.AfterFunc(inner, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finish(context.Cause(inner))
	})
	return s, nil
}

func (o *SnapshotOptions) complete() error {
	if o.PageSize == 0 {
		o.PageSize = snapshotPageSize
	}
	if err := checkPageLimit(o.PageSize); err != nil {
		return err
	}
	if o.MaxPages == 0 {
		o.MaxPages = snapshotMaxPages
	}
	if o.MaxPages < 0 {
		return &InvalidLimitError{Value: o.MaxPages, Min: 1, Max: int(^uint(0) >> 1)}
	}
	if o.MaxTime == 0 {
		o.MaxTime = snapshotMaxTime
	}
	if o.MaxTime < 0 {
		return fmt.Errorf("snapshot time %v is negative", o.MaxTime)
	}
	return nil
}

// upperSQL is the first read of the transaction, and so the moment that it shows.
const upperSQL = `SELECT coalesce(max(e.row_id), 0) FROM dovecote_events e WHERE 1 = 1%s`

func (s *Snapshot) begin() error {
	s.pool = sql.OpenDB(s.handle.store.reader)
	s.pool.SetMaxOpenConns(1)
	var err error
	if s.conn, err = s.pool.Conn(s.ctx); err != nil {
		return err
	}
	if _, err = s.conn.ExecContext(s.ctx, `BEGIN`); err != nil {
		return err
	}
	scope, tenant := s.handle.scope("e.tenant_id")
	return s.conn.QueryRowContext(s.ctx, fmt.Sprintf(upperSQL, scope), tenant...).Scan(&s.upper)
}

// finish releases the transaction; end says why to later calls. The caller holds
// mu.
func (s *Snapshot) finish(end error) {
	if s.end == nil {
		s.end = end
	}
	if s.stop != nil {
		s.stop()
	}
	s.cancel(end)
	if s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
	if s.pool != nil {
		s.pool.Close() // and with its one connection, the transaction
		s.pool = nil
	}
}

// Next returns the next page, or io.EOF after the last. A page has fewer entries
// than PageSize when their data is large. ErrSnapshotBudget: the page or time
// budget is used up; continue with a new snapshot after Cursor. An error of ctx
// ends the snapshot too.
func (s *Snapshot) Next(ctx context.Context) ([]Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.end != nil:
		return nil, s.end
	case s.ctx.Err() != nil:
		s.finish(context.Cause(s.ctx))
		return nil, s.end
	case s.cursor >= s.upper:
		s.finish(io.EOF)
		return nil, s.end
	case s.pages == s.options.MaxPages:
		s.finish(ErrSnapshotBudget)
		return nil, s.end
	}
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	page, err := s.handle.readPage(both, &txn{conn: s.conn}, s.cursor, s.upper, s.options.PageSize, snapshotPageBytes)
	switch {
	case err != nil && s.ctx.Err() != nil:
		s.finish(context.Cause(s.ctx))
		return nil, s.end
	case err != nil && ctx.Err() != nil:
		s.finish(ctx.Err())
		return nil, s.end
	case err != nil:
		s.finish(readError("read snapshot", err))
		return nil, s.end
	case len(page) == 0:
		s.finish(io.EOF)
		return nil, s.end
	}
	s.pages++
	s.cursor = page[len(page)-1].Row
	if s.cursor >= s.upper {
		s.finish(io.EOF)
	}
	return page, nil
}

// Upper is the highest row id that the snapshot shows, 0 if it shows none.
func (s *Snapshot) Upper() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upper
}

// Cursor is the last row id returned, SnapshotOptions.After before the first. A
// new snapshot after it goes on without a gap: every event that SQLite gave its
// row id commits above Upper if it commits after this snapshot began.
func (s *Snapshot) Cursor() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// Close releases the read transaction. It may be called twice.
func (s *Snapshot) Close() error {
	// A page that is being read ends first.
	s.cancel(ErrSnapshotClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(ErrSnapshotClosed)
	return nil
}
