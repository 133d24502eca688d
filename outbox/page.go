package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Delivery is a row's delivery as stored. Times are zero where NULL.
type Delivery struct {
	State            State
	AvailableAt      time.Time
	Attempts         int64
	ClaimedBy        string
	ClaimExpires     time.Time
	FailureCode      string
	FailureDetail    string
	DeliveredAt      time.Time
	QuarantinedAt    time.Time
	QuarantineReason string
}

// Requeued reports whether an operator has requeued the row and no worker has
// claimed it since: nothing else leaves a failure without an attempt.
func (d Delivery) Requeued() bool {
	return d.State == Pending && d.Attempts == 0 && d.FailureCode != ""
}

// QuarantineCode is the code of a quarantine reason, which has the form
// "code: text for a person"; "other" for a reason of another form.
func QuarantineCode(reason string) string {
	code, _, found := strings.Cut(reason, ": ")
	if !found || code == "" {
		return otherCode
	}
	for i := range len(code) {
		if c := code[i]; c != '_' && !isDigit(c) && (c < 'a' || 'z' < c) {
			return otherCode
		}
	}
	return code
}

const otherCode = "other"

// quarantineCodeSQL is QuarantineCode of d.quarantine_reason.
const quarantineCodeSQL = `
CASE WHEN instr(d.quarantine_reason, ': ') > 1
		AND substr(d.quarantine_reason, 1, instr(d.quarantine_reason, ': ') - 1) NOT GLOB '*[^a-z0-9_]*'
	THEN substr(d.quarantine_reason, 1, instr(d.quarantine_reason, ': ') - 1) ELSE 'other' END`

// Entry is an event with its delivery.
type Entry struct {
	Row        int64
	Event      Event
	EnqueuedAt time.Time
	Delivery   Delivery
	// Orphan: the event has no delivery row; Delivery is the zero value.
	Orphan bool
	// DecodeErr is set when the stored row cannot be decoded (then Event and
	// Delivery hold what could be read), nil otherwise. It is a
	// *SerializationError for the first bad column.
	DecodeErr error
}

// Limits of a page.
const (
	minPage = 1
	maxPage = 1000
)

func checkPageLimit(n int) error {
	if n < minPage || n > maxPage {
		return &InvalidLimitError{Value: n, Min: minPage, Max: maxPage}
	}
	return nil
}

// pageSQL reads a page at once, and pageRowsSQL finds its rows, each to be read by
// its row id: statistics of tables that were nearly empty once can make SQLite go
// through the whole of a table for every row of a join.
const (
	pageSQL = `SELECT ` + entryColumnsSQL + `
FROM dovecote_events e LEFT JOIN dovecote_deliveries d ON d.event_row_id = e.row_id
WHERE e.row_id > ? AND e.row_id <= ?%s ORDER BY e.row_id LIMIT ?`
	pageRowsSQL = `SELECT e.row_id FROM dovecote_events e WHERE e.row_id > ? AND e.row_id <= ?%s ORDER BY e.row_id LIMIT ?`
	// entryColumnsSQL selects what entryColumns receives.
	entryColumnsSQL = `e.row_id, d.event_row_id, ` + deliveryColumnsSQL + `, ` + eventColumnsSQL
	maxRow          = 1<<63 - 1
)

// Page returns up to limit (1..1000) events with row id > after, any state, in
// row id order; none is the end. The cursor is the last entry's Row.
//
// Live: it shows what is committed when it reads. SQLite hands out row ids under
// the writer slot, so they commit in their order, and paging on by cursor misses
// no event that was enqueued later. Only a writer that sets row_id itself can
// commit a lower one, which a cursor beyond it does not see.
//
// Every kind of stored row is returned: one that cannot be decoded has its
// DecodeErr set, and does not stop the page.
func (h *Handle) Page(ctx context.Context, after int64, limit int) ([]Entry, error) {
	if err := checkPageLimit(limit); err != nil {
		return nil, err
	}
	var page []Entry
	err := h.store.read(ctx, "page", func(ctx context.Context, t *txn) (err error) {
		page, err = h.readPage(ctx, t, after, maxRow, limit, 0)
		return err
	})
	return page, err
}

// readPage reads entries in (after, upper], fewer than limit when their data
// exceeds maxBytes (0: no bound). The first entry always fits.
func (h *Handle) readPage(ctx context.Context, t *txn, after, upper int64, limit, maxBytes int) ([]Entry, error) {
	p := entryPage{maxBytes: maxBytes}
	err := h.eachOfPage(ctx, t, after, upper, limit, p.add)
	return p.entries, err
}

// entryPage collects entries until their data has reached maxBytes (0: no bound).
type entryPage struct {
	entries         []Entry
	bytes, maxBytes int
}

func (p *entryPage) add(c *entryColumns) bool {
	e := c.decode()
	p.entries = append(p.entries, e)
	p.bytes += len(e.Event.Data.bytes)
	return p.maxBytes == 0 || p.bytes < p.maxBytes
}

// eachOfPage calls see for up to limit rows in (after, upper], until it returns
// false. The columns are only good until then.
func (h *Handle) eachOfPage(ctx context.Context, t *txn, after, upper int64, limit int, see func(*entryColumns) bool) error {
	scope, tenant := h.scope("e.tenant_id")
	args := append(append([]any{after, upper}, tenant...), limit)
	query := fmt.Sprintf(pageSQL, scope)
	steps, err := t.plan(ctx, query)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(steps, func(step string) bool { return strings.HasPrefix(step, "SCAN") }) {
		rows, err := readRows(ctx, t.conn, fmt.Sprintf(pageRowsSQL, scope), args...)
		if err != nil {
			return err
		}
		return eachEntry(ctx, t.conn, rows, see)
	}
	rows, err := t.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var c entryColumns
	dest := c.dest()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if !see(&c) {
			break
		}
	}
	return rows.Err()
}

// Get returns one row, or ErrNotFound.
func (h *Handle) Get(ctx context.Context, row int64) (Entry, error) {
	var page []Entry
	err := h.store.read(ctx, "get", func(ctx context.Context, t *txn) (err error) {
		page, err = h.readPage(ctx, t, row-1, row, 1, 0)
		return err
	})
	switch {
	case err != nil:
		return Entry{}, err
	case len(page) == 0:
		return Entry{}, fmt.Errorf("row %d: %w", row, ErrNotFound)
	}
	return page[0], nil
}

// entrySQL reads the event of row ?1, with its delivery. In parts that have one
// table each, the plan is fixed.
const entrySQL = `
WITH e AS MATERIALIZED (SELECT * FROM dovecote_events WHERE row_id = ?1),
	d AS MATERIALIZED (SELECT * FROM dovecote_deliveries WHERE event_row_id = ?1)
SELECT ` + entryColumnsSQL + ` FROM e LEFT JOIN d`

// eachEntry calls see for one row after the other, until it returns false. The
// columns are only good until then. A row without an event is left out.
func eachEntry(ctx context.Context, conn *sql.Conn, rows []int64, see func(*entryColumns) bool) error {
	stmt, err := conn.PrepareContext(ctx, entrySQL)
	if err != nil {
		return err
	}
	defer stmt.Close()
	var c entryColumns
	dest := c.dest()
	for _, row := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Without a context that can end, the driver starts no goroutine to watch it.
		err := stmt.QueryRowContext(context.WithoutCancel(ctx), row).Scan(dest...)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		if !see(&c) {
			return nil
		}
	}
	return nil
}

// entryColumns receives one row of a page, in whatever form it is stored.
type entryColumns struct {
	row      int64
	delivery sql.NullInt64 // not valid: an orphan
	deliveryColumns
	eventColumns
}

func (c *entryColumns) dest() []any {
	d := []any{&c.row, &c.delivery}
	return append(append(d, c.deliveryColumns.dest()...), c.eventColumns.dest()...)
}

func (c *entryColumns) decode() Entry {
	e := Entry{Row: c.row, Orphan: !c.delivery.Valid}
	e.Event, e.EnqueuedAt, e.DecodeErr = c.eventColumns.decode(c.row)
	if e.Orphan {
		return e
	}
	var err error
	if e.Delivery, err = c.deliveryColumns.decode(c.row, c.eventColumns.tenant); err != nil && e.DecodeErr == nil {
		e.DecodeErr = err
	}
	return e
}
