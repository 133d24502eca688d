package outbox

import (
	"context"
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

// Entry is an event with its delivery.
type Entry struct {
	Row        int64
	Event      Event
	EnqueuedAt time.Time
	Delivery   Delivery
	// Orphan: the event has no delivery row; Delivery is the zero value.
	Orphan bool
	// DecodeErr is set when the stored row cannot be decoded (then Event
	// holds what could be read), nil otherwise.
	DecodeErr error
}

// Page returns up to limit (1..1000) events with row id > after, any state, in
// row id order. The cursor is the last entry's Row. Live: a lower row id may
// commit later.
func (h *Handle) Page(ctx context.Context, after int64, limit int) ([]Entry, error) { panic("todo") }

// Get returns one row, or ErrNotFound.
func (h *Handle) Get(ctx context.Context, row int64) (Entry, error) { panic("todo") }

// Filter selects rows; zero fields select all.
type Filter struct {
	State  State
	Stream string
	Tenant string
	Code   string // quarantine code, or last failure code
	After  int64  // row id >
}

// List returns up to limit (1..1000) entries that match f in row id order.
func (h *Handle) List(ctx context.Context, f Filter, limit int) ([]Entry, error) { panic("todo") }
