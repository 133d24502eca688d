package outbox

import (
	"context"
	"time"
)

// SnapshotOptions bound a snapshot. Zero means 10,000 pages and one minute.
type SnapshotOptions struct {
	After    int64
	PageSize int // 1..1000; 0 means 500
	MaxPages int
	MaxTime  time.Duration
}

// Snapshot pages one read transaction up to an upper bound recorded after it
// began. It releases the transaction on completion, on cancel and on Close.
type Snapshot struct{ unimplemented }

// Snapshot begins one.
func (h *Handle) Snapshot(ctx context.Context, o SnapshotOptions) (*Snapshot, error) { panic("todo") }

// Next returns the next page, or io.EOF after the last. ErrSnapshotBudget: the page or time
// budget is used up; continue with a new snapshot after Cursor.
func (s *Snapshot) Next(ctx context.Context) ([]Entry, error) { panic("todo") }

// Upper is the bound; Cursor the last row id returned.
func (s *Snapshot) Upper() int64  { panic("todo") }
func (s *Snapshot) Cursor() int64 { panic("todo") }

// Close releases the read transaction. It may be called twice.
func (s *Snapshot) Close() error { panic("todo") }
