package outbox

import "context"

// Orphans lists events without a delivery row, row id > after, up to limit
// (1..1000).
func (h *Handle) Orphans(ctx context.Context, after int64, limit int) ([]int64, error) { panic("todo") }

// Repair gives each named orphan a pending delivery, due now. Rows that are no orphans
// any more are left alone. It returns the rows repaired.
func (h *Handle) Repair(ctx context.Context, rows []int64) ([]int64, error) { panic("todo") }
