package outbox

import (
	"context"
	"time"
)

// PruneRequest says what to remove. A zero age leaves that state alone.
type PruneRequest struct {
	Delivered   time.Duration // remove rows delivered longer ago than this
	Quarantined time.Duration
	Batch       int // rows in one transaction, 1..1000; 0 means 500
	DryRun      bool
	// Progress, when set, is called after each batch with the rows removed so far.
	Progress func(removed int64)
}

// Pruned counts what a prune removed (or would remove).
type Pruned struct{ Delivered, Quarantined int64 }

// Prune removes old delivered and quarantined rows in bounded transactions,
// deliveries before events, never a pending or claimed row. Pruning ends replay
// detection for what it removed.
func (h *Handle) Prune(ctx context.Context, r PruneRequest) (Pruned, error) { panic("todo") }
