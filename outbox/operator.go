package outbox

import "context"

// Requeued is one row's own outcome of an operator action: nil, ErrNotFound or
// *TransitionError.
type RowResult struct {
	Row int64
	Err error
}

// Requeue moves quarantined rows to pending, due now, attempts 0, last failure
// kept.
func (h *Handle) Requeue(ctx context.Context, rows []int64) ([]RowResult, error) { panic("todo") }

// QuarantinePending moves pending rows to quarantined. It never touches claimed
// or delivered rows. An empty reason is an error.
func (h *Handle) QuarantinePending(ctx context.Context, rows []int64, reason string) ([]RowResult, error) {
	panic("todo")
}
