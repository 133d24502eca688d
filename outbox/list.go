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
	// From events, orphans among them, where no column of deliveries is asked for;
	// else from deliveries, which are far smaller, each event being looked up.
	fromEventsSQL     = `SELECT e.row_id FROM dovecote_events e WHERE e.row_id > ?`
	fromDeliveriesSQL = `SELECT d.event_row_id FROM dovecote_deliveries d WHERE d.event_row_id > ?`
	ofEventSQL        = ` AND (SELECT e.%s FROM dovecote_events e WHERE e.row_id = d.event_row_id) = ?`
	filterCodeSQL     = ` AND CASE d.state WHEN 'quarantined' THEN ` + quarantineCodeSQL + ` ELSE d.last_failure_code END = ?`
)

// query is the filter as SQL that finds row ids, in their order, up to a limit
// that is its last argument. With deliveries, rows without one are left out.
func (f Filter) query(h *Handle, deliveries bool) (string, []any) {
	var q strings.Builder
	args := []any{f.After}
	and := func(predicate, value string) {
		if value != "" {
			q.WriteString(predicate)
			args = append(args, value)
		}
	}
	if f.State == "" && f.Code == "" && !deliveries {
		q.WriteString(fromEventsSQL)
		and(` AND e.stream = ?`, f.Stream)
		and(` AND e.tenant_id = ?`, f.Tenant)
		and(` AND e.tenant_id = ?`, h.tenant)
		return q.String() + ` ORDER BY e.row_id LIMIT ?`, args
	}
	q.WriteString(fromDeliveriesSQL)
	if f.State != "" {
		// In the text, for an index of this state to be found.
		fmt.Fprintf(&q, ` AND d.state = '%s'`, f.State)
	}
	and(filterCodeSQL, f.Code)
	and(fmt.Sprintf(ofEventSQL, "stream"), f.Stream)
	and(fmt.Sprintf(ofEventSQL, "tenant_id"), f.Tenant)
	and(fmt.Sprintf(ofEventSQL, "tenant_id"), h.tenant)
	return q.String() + ` ORDER BY d.event_row_id LIMIT ?`, args
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
	query, args := f.query(h, false)
	var list entryPage
	err := h.store.read(ctx, "list", func(ctx context.Context, t *txn) error {
		rows, err := readRows(ctx, t.conn, query, append(args, limit)...)
		if err != nil {
			return err
		}
		return eachEntry(ctx, t.conn, rows, list.add)
	})
	return list.entries, err
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
	query, args := f.query(h, true)
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
