package outbox

import (
	"context"
	"time"
)

// Token is a claim's fencing token. It never prints itself.
type Token [16]byte

func (Token) String() string { return "[token]" }

// GoString keeps the token out of %#v.
func (Token) GoString() string { return "[token]" }

// Claimed is an event leased to a worker.
type Claimed struct {
	Row         int64
	Token       Token
	Attempts    int64 // claims so far, this one included
	Expires     time.Time
	EnqueuedAt  time.Time
	Reclaimed   bool   // taken from another claim's expired lease
	LastFailure string // last_failure_code as it stood before this claim, "" if none
	Event       Event
}

// ClaimRequest says what to claim.
type ClaimRequest struct {
	Worker   string        // 1..255 bytes
	Lease    time.Duration // whole milliseconds, > 0, <= 24 h
	Limit    int           // 1..1000
	MaxBytes int64         // stop before the batch's data exceeds this; the first row always fits; 0: no bound
}

// Claim leases up to limit due events to worker for lease, earliest due first,
// returned in ascending row id. Nothing due is an empty slice and a nil error.
// A batch with a bad row is a *BadRowsError that names every bad row and
// changes nothing. ErrBusyExhausted: the writer slot stayed taken.
func (h *Handle) Claim(ctx context.Context, worker string, lease time.Duration, limit int) ([]Claimed, error) {
	panic("todo")
}

// SetAside quarantines those of rows that satisfy the candidate predicate
// now (pending and due, or claimed and expired), and returns their ids.
func (h *Handle) SetAside(ctx context.Context, rows []BadRow) ([]int64, error) { panic("todo") }
