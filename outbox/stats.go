package outbox

import (
	"context"
	"time"
)

// StreamStats counts one stream's rows.
type StreamStats struct {
	Stream                        string
	Pending, Claimed, Quarantined int64
	OldestPending                 time.Time // earliest enqueued_at of a pending row; zero: none
}

// Stats is a consistent picture of the outbox.
type Stats struct {
	Now                                      time.Time
	Pending, Claimed, Delivered, Quarantined int64
	Expired                                  int64 // claimed rows whose lease has ended
	FarLeases                                int64 // claimed rows whose lease ends later than the longest lease allows
	Orphans                                  int64 // -1: not counted
	OldestPending                            time.Time
	NextDue                                  time.Time
	Streams                                  []StreamStats // by name
	QuarantineByCode                         map[string]int64
}

// Stats counts in one read transaction, without the writer slot. Its cost
// grows with the number of rows that are not delivered, plus one index scan.
func (h *Handle) Stats(ctx context.Context) (Stats, error) { panic("todo") }
