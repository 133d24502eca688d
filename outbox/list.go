package outbox

import (
	"context"
	"fmt"
	"strings"
)

// Filter selects rows; zero fields select all.
type Filter struct {
	State  State
	Stream string
	Tenant string
	// Code is compared with the code of the reason of quarantined rows
	// ([QuarantineCode]), and with the last failure code of all others.
	Code  string
	After int64 // row id >
}

const (
	listColumnsSQL = `SELECT ` + entryColumnsSQL
	listRowsSQL    = `SELECT d.event_row_id`
	// From events, orphans among them, when no column of deliveries is asked
	// for; else from deliveries, which are far smaller.
	fromEventsSQL     = ` FROM dovecote_events e LEFT JOIN dovecote_deliveries d ON d.event_row_id = e.row_id WHERE e.row_id > ?`
	fromDeliveriesSQL = ` FROM dovecote_deliveries d CROSS JOIN dovecote_events e ON e.row_id = d.event_row_id WHERE d.event_row_id > ?`
	filterCodeSQL     = ` AND CASE d.state WHEN 'quarantined' THEN ` + quarantineCodeSQL + ` ELSE d.last_failure_code END = ?`
)

// query is the filter as SQL, with the handle's tenant, in row id order up to a
// limit that is its last argument.
func (f Filter) query(h *Handle, columns string) (string, []any) {
	var q strings.Builder
	q.WriteString(columns)
	order := " ORDER BY d.event_row_id LIMIT ?"
	if f.State == "" && f.Code == "" && columns == listColumnsSQL {
		q.WriteString(fromEventsSQL)
		order = " ORDER BY e.row_id LIMIT ?"
	} else {
		q.WriteString(fromDeliveriesSQL)
	}
	args := []any{f.After}
	and := func(predicate, value string) {
		if value != "" {
			q.WriteString(predicate)
			args = append(args, value)
		}
	}
	and(" AND d.state = ?", string(f.State))
	and(filterCodeSQL, f.Code)
	and(" AND e.stream = ?", f.Stream)
	and(" AND e.tenant_id = ?", f.Tenant)
	scope, tenant := h.scope("e.tenant_id")
	q.WriteString(scope)
	q.WriteString(order)
	return q.String(), append(args, tenant...)
}

func (f Filter) check() error {
	if f.State == "" {
		return nil
	}
	if p := checkState(string(f.State)); p != nil {
		return fmt.Errorf("state %s", p.problem())
	}
	return nil
}

// List returns up to limit (1..1000) entries that match f in row id order.
// Its cost grows with the rows that it has to pass over: with a State, or a
// Code, those are deliveries, whose rows are small.
func (h *Handle) List(ctx context.Context, f Filter, limit int) ([]Entry, error) {
	if err := checkPageLimit(limit); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	query, args := f.query(h, listColumnsSQL)
	var list []Entry
	err := h.store.read(ctx, "list", func(ctx context.Context, t *txn) (err error) {
		list, err = readEntries(ctx, t.conn, query, append(args, limit), 0)
		return err
	})
	return list, err
}

// SelectRows returns the ids of up to limit (1..1000) rows with an event and a
// delivery that match f, in row id order. To act on all of them, act on each
// batch and go on with After set to its last row.
func (h *Handle) SelectRows(ctx context.Context, f Filter, limit int) ([]int64, error) {
	if err := checkPageLimit(limit); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	query, args := f.query(h, listRowsSQL)
	var list []int64
	err := h.store.read(ctx, "select rows", func(ctx context.Context, t *txn) (err error) {
		list, err = readRows(ctx, t.conn, query, append(args, limit)...)
		return err
	})
	return list, err
}

// readRows reads a column of row ids.
func readRows(ctx context.Context, q querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []int64
	for rows.Next() {
		var row int64
		if err := rows.Scan(&row); err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, rows.Err()
}
