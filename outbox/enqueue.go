package outbox

import (
	"context"
	"database/sql"
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

// Begin starts a transaction that already holds the writer slot, whatever the
// driver's default.
func Begin(ctx context.Context, db *sql.DB) (*sql.Tx, error) { panic("todo") }

// Enqueue writes e in the caller's transaction.
func Enqueue(ctx context.Context, tx *sql.Tx, e Event, opts ...EnqueueOption) (Receipt, error) {
	panic("todo")
}

// EnqueueAll writes many events; the receipts are in their order. On error the
// caller should roll back: earlier events of the batch have been written.
func EnqueueAll(ctx context.Context, tx *sql.Tx, events []Event, opts ...EnqueueOption) ([]Receipt, error) {
	panic("todo")
}
