package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// inserter writes events and their deliveries in a caller's transaction. It uses
// nothing but plain placeholders and basic types, which every driver has.
type inserter struct {
	insertEvent    func(ctx context.Context, args ...any) (sql.Result, error)
	insertDelivery func(ctx context.Context, args ...any) (sql.Result, error)
	close          func()
}

// insertEventSQL leaves an event with the same identity alone.
var insertEventSQL = `INSERT INTO dovecote_events (` + eventInsertColumns + `)
VALUES (?` + strings.Repeat(", ?", eventInsertCount-1) + `) ON CONFLICT DO NOTHING`

// insertDeliverySQL is due at once: the event's database time serves both rows.
const insertDeliverySQL = `
INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, available_at)
SELECT row_id, tenant_id, 'pending', enqueued_at FROM dovecote_events WHERE row_id = ?`

// unprepared is for a single event.
func unprepared(tx *sql.Tx) inserter {
	return inserter{
		insertEvent: func(ctx context.Context, args ...any) (sql.Result, error) {
			return tx.ExecContext(ctx, insertEventSQL, args...)
		},
		insertDelivery: func(ctx context.Context, args ...any) (sql.Result, error) {
			return tx.ExecContext(ctx, insertDeliverySQL, args...)
		},
	}
}

// prepareInserter is for many events.
func prepareInserter(ctx context.Context, tx *sql.Tx) (inserter, error) {
	event, err := tx.PrepareContext(ctx, insertEventSQL)
	if err != nil {
		return inserter{}, err
	}
	delivery, err := tx.PrepareContext(ctx, insertDeliverySQL)
	if err != nil {
		event.Close()
		return inserter{}, err
	}
	return inserter{event.ExecContext, delivery.ExecContext, func() { event.Close(); delivery.Close() }}, nil
}

// event inserts e and returns its row id, or 0 if its identity is taken.
func (i inserter) event(ctx context.Context, e *Event) (int64, error) {
	r, err := i.insertEvent(ctx, e.appendColumns(make([]any, 0, eventInsertCount))...)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err != nil || n == 0 {
		return 0, err
	}
	return r.LastInsertId()
}

// delivery inserts the pending delivery of the event row.
func (i inserter) delivery(ctx context.Context, row int64) error {
	r, err := i.insertDelivery(ctx, row)
	if err != nil {
		return err
	}
	return changedOne(r)
}

// changedOne is nil if r tells of exactly one row.
func changedOne(r sql.Result) error {
	n, err := r.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows changed instead of one", n)
	}
	return err
}
