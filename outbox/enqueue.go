package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Outcome tells what an enqueue did.
type Outcome uint8

const (
	// Enqueued: the event and its pending delivery were inserted.
	Enqueued Outcome = iota + 1
	// AlreadyEnqueued: the same identity with the same content was there.
	AlreadyEnqueued
)

// Receipt is the result of an enqueue.
type Receipt struct {
	Outcome Outcome
	Row     int64
}

// EnqueueOption adjusts Enqueue.
type EnqueueOption func(*enqueueOptions)

type enqueueOptions struct{ maxSize int }

// MaxSize sets the size limit in bytes; default 65,536.
func MaxSize(n int) EnqueueOption { return func(o *enqueueOptions) { o.maxSize = n } }

func enqueueSettings(opts []EnqueueOption) enqueueOptions {
	o := enqueueOptions{maxSize: defaultMaxSize}
	for _, set := range opts {
		set(&o)
	}
	return o
}

// takeSlotSQL changes nothing, but it is a write, and SQLite takes the writer
// slot before it looks at the first row.
const takeSlotSQL = `UPDATE dovecote_schema SET schema_version = schema_version WHERE 0`

// Begin starts a transaction that already holds the writer slot, whatever the
// driver's default, so that nothing in it can fail for having read before it
// wrote. It waits for the slot as long as the connection's busy_timeout says;
// after that the error is ErrBusyExhausted, and no transaction is open.
func Begin(ctx context.Context, db *sql.DB) (*sql.Tx, error) {
	const op = "begin"
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, readError(op, err)
	}
	if _, err := tx.ExecContext(ctx, takeSlotSQL); err != nil {
		_ = tx.Rollback()
		return nil, readError(op, err)
	}
	return tx, nil
}

// Enqueue writes e in the caller's transaction, which may be of any SQLite driver,
// and never commits it or rolls it back. It validates first: an
// *InvalidEventError has written nothing.
//
// An event of the same tenant, source and id that is already there is
// AlreadyEnqueued if all of its content is the same, byte for byte, and an
// *IdempotencyConflictError if it is not. If that event has no delivery row, the
// error is a *MigrationMismatchError; nothing is repaired.
//
// ErrBusyUpgrade: the transaction had begun DEFERRED and cannot become the
// writer any more; see [Begin].
func Enqueue(ctx context.Context, tx *sql.Tx, e Event, opts ...EnqueueOption) (Receipt, error) {
	o := enqueueSettings(opts)
	if err := o.check(&e); err != nil {
		return Receipt{}, err
	}
	return enqueue(ctx, tx, unprepared(tx), &e)
}

// EnqueueAll writes many events; the receipts are in their order. All are
// validated before the first is written. The error is an *EventError where one of the
// events is to blame. The caller should then roll back: earlier events of the batch may
// have been written.
func EnqueueAll(ctx context.Context, tx *sql.Tx, events []Event, opts ...EnqueueOption) ([]Receipt, error) {
	o := enqueueSettings(opts)
	for i := range events {
		if err := o.check(&events[i]); err != nil {
			return nil, &EventError{i, err}
		}
	}
	ins, err := prepareInserter(ctx, tx)
	if err != nil {
		return nil, enqueueError(err)
	}
	defer ins.close()
	receipts := make([]Receipt, 0, len(events))
	for i := range events {
		r, err := enqueue(ctx, tx, ins, &events[i])
		if err != nil {
			return nil, &EventError{i, err}
		}
		receipts = append(receipts, r)
	}
	return receipts, nil
}

func (o *enqueueOptions) check(e *Event) error {
	if err := e.Validate(); err != nil {
		return err
	}
	return e.checkSize(o.maxSize)
}

// enqueue inserts a valid event, or finds out what is in its place.
func enqueue(ctx context.Context, tx *sql.Tx, ins inserter, e *Event) (Receipt, error) {
	row, err := ins.event(ctx, e)
	if err != nil {
		return Receipt{}, enqueueError(err)
	}
	if row == 0 {
		return existing(ctx, tx, e)
	}
	// The writer slot is ours now, so this does not wait, and it must not be
	// interrupted: the event would be left without its delivery.
	ctx = context.WithoutCancel(ctx)
	if err := ins.delivery(ctx, row); err != nil {
		return Receipt{}, enqueueError(errors.Join(err, takeBack(ctx, tx, e, row)))
	}
	return Receipt{Enqueued, row}, nil
}

const takeBackSQL = `
DELETE FROM dovecote_events
WHERE row_id = ? AND tenant_id = ? AND source = ? AND event_id = ?
  AND NOT EXISTS (SELECT 1 FROM dovecote_deliveries AS d
    WHERE d.event_row_id = dovecote_events.row_id AND d.tenant_id = dovecote_events.tenant_id)`

// takeBack removes an event whose delivery could not be written, for a caller
// that commits in spite of the error.
func takeBack(ctx context.Context, tx *sql.Tx, e *Event, row int64) error {
	_, err := tx.ExecContext(ctx, takeBackSQL, row, e.Tenant, e.Source, e.ID)
	return err
}

// existingSQL is no join: each of its tables is found by a unique key, whatever
// the statistics say.
const existingSQL = `
SELECT ` + eventColumnsSQL + `, e.row_id,
  (SELECT d.event_row_id FROM dovecote_deliveries d WHERE d.event_row_id = e.row_id)
FROM dovecote_events e
WHERE e.tenant_id = ? AND e.source = ? AND e.event_id = ?`

// existing compares e with the event that holds its identity.
func existing(ctx context.Context, tx *sql.Tx, e *Event) (Receipt, error) {
	rows, err := tx.QueryContext(ctx, existingSQL, e.Tenant, e.Source, e.ID)
	if err != nil {
		return Receipt{}, enqueueError(err)
	}
	defer rows.Close()
	if !rows.Next() {
		return Receipt{}, enqueueError(errors.Join(rows.Err(),
			errors.New("the insert did nothing, although no event has this identity")))
	}
	var stored eventColumns
	var row int64
	var delivery sql.NullInt64
	if err := rows.Scan(append(stored.dest(), &row, &delivery)...); err != nil {
		return Receipt{}, enqueueError(err)
	}
	switch {
	case !delivery.Valid:
		return Receipt{}, withoutDelivery(row)
	case !e.sameContent(&stored):
		return Receipt{}, &IdempotencyConflictError{Row: row}
	}
	return Receipt{AlreadyEnqueued, row}, enqueueError(rows.Close())
}

func enqueueError(err error) error { return callerError("enqueue", err) }

// callerError names the operation in a caller's transaction, in which only the
// first write can find the database busy.
func callerError(op string, err error) error {
	if code, ok := codeOf(err); ok && code&0xff == codeBusy {
		err = fmt.Errorf("%w: %w", ErrBusyUpgrade, err)
	}
	return wrapSQL(op, err)
}
