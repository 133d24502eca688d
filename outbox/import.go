package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ImportOutcome tells what an import did.
type ImportOutcome uint8

const (
	// Imported: the event and its delivery were inserted.
	Imported ImportOutcome = iota + 1
	// AlreadyImported: the same content was there in the same state.
	AlreadyImported
)

// ImportEvent is an event of an older outbox. A zero DeliveredAt imports it
// pending; any other must have whole microseconds and lie within 1970 to 9999.
type ImportEvent struct {
	Event       Event
	DeliveredAt time.Time
}

const insertDeliveredSQL = `
INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, available_at, delivered_at)
SELECT row_id, tenant_id, 'delivered', enqueued_at, ? FROM dovecote_events WHERE row_id = ?`

// Import writes e in the caller's transaction, pending or delivered at its
// authoritative time, and returns its row. The transaction may be of any SQLite
// driver; Import never commits it or rolls it back. Enqueued and due is the time
// of the import. The size limit of an enqueue does not apply: what the older
// outbox took is taken.
//
// The same content and state again is AlreadyImported, changed content
// *IdentityConflictError, changed state *ImportConflictError: a row that was
// claimed, or failed, or whose time of delivery is another one, has another state.
// An *InvalidEventError has written nothing (field "delivered_at" for the time). If
// the event is there without its delivery row, the error is a
// *MigrationMismatchError. ErrBusyUpgrade: see [Begin].
//
// An event that an older publisher may still be sending must not be imported as
// pending: let its claim end first.
func Import(ctx context.Context, tx *sql.Tx, e ImportEvent) (ImportOutcome, int64, error) {
	const op = "import"
	if err := e.Event.Validate(); err != nil {
		return 0, 0, err
	}
	if err := checkDeliveredAt(e.DeliveredAt); err != nil {
		return 0, 0, err
	}
	ins := unprepared(tx)
	if !e.DeliveredAt.IsZero() {
		at := formatTime(e.DeliveredAt)
		ins.insertDelivery = func(ctx context.Context, row ...any) (sql.Result, error) {
			return tx.ExecContext(ctx, insertDeliveredSQL, at, row[0])
		}
	}
	row, err := ins.event(ctx, &e.Event)
	if err != nil {
		return 0, 0, callerError(op, err)
	}
	if row == 0 {
		return imported(ctx, tx, &e)
	}
	// As with an enqueue, the event is not left without its delivery.
	ctx = context.WithoutCancel(ctx)
	if err := ins.delivery(ctx, row); err != nil {
		return 0, 0, callerError(op, errors.Join(err, takeBack(ctx, tx, &e.Event, row)))
	}
	return Imported, row, nil
}

func checkDeliveredAt(at time.Time) error {
	if at.IsZero() {
		return nil
	}
	if p := checkTime(at); p != nil {
		return inField("delivered_at", p)
	}
	return nil
}

// canonicalSQL holds for a delivery d that nothing but its import or enqueue, or
// a Finalize, has touched.
const canonicalSQL = `coalesce(d.attempts = 0 AND d.claim_token IS NULL AND d.claimed_by IS NULL AND d.claim_expires_at IS NULL
	AND d.last_failure_code IS NULL AND d.last_failure_detail IS NULL
	AND d.quarantined_at IS NULL AND d.quarantine_reason IS NULL AND d.available_at = e.enqueued_at, 0)`

// importedSQL is no join: each of its tables is found by a unique key, whatever
// the statistics say.
const (
	importedSQL = `
SELECT e.row_id, (SELECT d.event_row_id` + itsDeliverySQL + `, (SELECT d.state` + itsDeliverySQL + `, (SELECT d.delivered_at` + itsDeliverySQL + `,
	(SELECT ` + canonicalSQL + itsDeliverySQL + `, ` + eventColumnsSQL + `
FROM dovecote_events e WHERE `
	itsDeliverySQL = ` FROM dovecote_deliveries d WHERE d.event_row_id = e.row_id)`
)

// importRow receives one row of importedSQL.
type importRow struct {
	row         int64
	delivery    sql.NullInt64
	state       sql.NullString
	deliveredAt any
	canonical   sql.NullInt64
	event       eventColumns
}

// is reports whether the row is as an import at the given time, or a pending
// one, would have left it.
func (r *importRow) is(at time.Time) bool {
	if at.IsZero() {
		return r.canonical.Int64 == 1 && State(r.state.String) == Pending && r.deliveredAt == nil
	}
	return r.canonical.Int64 == 1 && State(r.state.String) == Delivered && sameInstant(r.deliveredAt, at)
}

// sameInstant compares a stored time, as any driver scans it, with at.
func sameInstant(v any, at time.Time) bool {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case []byte:
		text = string(v)
	}
	stored, ok := parseTime(text)
	return ok && stored.Equal(at)
}

// readImport reads the row that where finds, and lets see look at it while it is
// the current one. No row is sql.ErrNoRows.
func readImport(ctx context.Context, tx *sql.Tx, see func(*importRow) error, where string, args ...any) error {
	rows, err := tx.QueryContext(ctx, importedSQL+where, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return errors.Join(rows.Err(), sql.ErrNoRows)
	}
	var r importRow
	if err := rows.Scan(append([]any{&r.row, &r.delivery, &r.state, &r.deliveredAt, &r.canonical}, r.event.dest()...)...); err != nil {
		return err
	}
	if !r.delivery.Valid {
		return withoutDelivery(r.row)
	}
	if err := see(&r); err != nil {
		return err
	}
	return rows.Close()
}

func withoutDelivery(row int64) error {
	return &MigrationMismatchError{
		Problems: []string{fmt.Sprintf("row %d has an event but no delivery", row)},
		Remedy:   "see `relay reconcile`",
	}
}

// imported compares e with the event that holds its identity.
func imported(ctx context.Context, tx *sql.Tx, e *ImportEvent) (ImportOutcome, int64, error) {
	var row int64
	err := readImport(ctx, tx, func(r *importRow) error {
		row = r.row
		switch {
		case !e.Event.sameContent(&r.event):
			return &IdentityConflictError{Row: r.row}
		case !r.is(e.DeliveredAt):
			return &ImportConflictError{Row: r.row, State: State(r.state.String)}
		}
		return nil
	}, `e.tenant_id = ? AND e.source = ? AND e.event_id = ?`, e.Event.Tenant, e.Event.Source, e.Event.ID)
	if err != nil {
		return 0, row, callerError("import", err)
	}
	return AlreadyImported, row, nil
}

const finalizeSQL = `
UPDATE dovecote_deliveries AS d SET state = 'delivered', delivered_at = ?
WHERE d.event_row_id = ? AND d.tenant_id = ? AND d.state = 'pending' AND d.delivered_at IS NULL
	AND (SELECT ` + canonicalSQL + ` FROM dovecote_events e WHERE e.row_id = d.event_row_id)`

// Finalize marks a still canonical pending row (never claimed, no failure, due
// when enqueued) delivered at the given time, which an older outbox vouches for, in
// the caller's transaction. A row that a Finalize or Import has marked delivered at
// the same time stays as it is, without an error; any other is a
// *StateConflictError. ErrNotFound: the tenant has no such event. The time is
// as in [ImportEvent].
func Finalize(ctx context.Context, tx *sql.Tx, tenant string, row int64, at time.Time) error {
	const op = "finalize"
	if err := validTenant(tenant); err != nil {
		return err
	}
	if at.IsZero() {
		return &InvalidEventError{Field: "delivered_at", Rule: RuleEmpty}
	}
	if err := checkDeliveredAt(at); err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, finalizeSQL, formatTime(at), row, tenant)
	if err != nil {
		return callerError(op, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return callerError(op, err)
	}
	err = readImport(ctx, tx, func(r *importRow) error {
		if r.is(at) {
			return nil
		}
		return &StateConflictError{Row: row, State: State(r.state.String)}
	}, `e.row_id = ? AND e.tenant_id = ?`, row, tenant)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("row %d: %w", row, ErrNotFound)
	}
	return callerError(op, err)
}
