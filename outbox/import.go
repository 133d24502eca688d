package outbox

import (
	"context"
	"database/sql"
	"time"
)

// ImportOutcome tells what an import did.
type ImportOutcome uint8

const (
	Imported ImportOutcome = iota + 1
	AlreadyImported
)

// ImportEvent is an event of an older outbox. A zero DeliveredAt imports it pending.
type ImportEvent struct {
	Event       Event
	DeliveredAt time.Time
}

// Import writes e in the caller's transaction, pending or delivered at its
// authoritative time. The same content and state again is AlreadyImported,
// changed content *IdentityConflictError, changed state *ImportConflictError.
func Import(ctx context.Context, tx *sql.Tx, e ImportEvent) (ImportOutcome, int64, error) {
	panic("todo")
}

// Finalize marks a still canonical pending row (never claimed, no failure, due
// when enqueued) delivered at the given time; *StateConflictError otherwise.
func Finalize(ctx context.Context, tx *sql.Tx, tenant string, row int64, at time.Time) error {
	panic("todo")
}
