package relay

import (
	"context"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

const (
	// pruneRest leaves the writer slot to others for this many times as long
	// as a batch took.
	pruneRest = 3
	// Counting rows costs more the more there are; it may take this share of one
	// core.
	countShare    = 50
	minCountEvery = 5 * time.Second
	maxCountEvery = 5 * time.Minute
)

// pruneOldRows removes rows past their retention until ctx ends. It shares the
// writer with the loop batch by batch.
func (l *loop) pruneOldRows(ctx context.Context) {
	failing := false
	for {
		r := *l.r.prune.Load()
		if !sleep(ctx, r.Every) {
			return
		}
		r = *l.r.prune.Load()
		if r.Delivered <= 0 && r.Quarantined <= 0 {
			continue
		}
		removed, err := l.prune(ctx, r)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			l.log.Warn().Err(err).Msg("old rows could not be removed; it is tried again")
		case removed > 0:
			l.log.Debug().Int64("rows", removed).Msg("old rows removed")
		}
		failing = err != nil
	}
}

// prune removes what is old now, with rests between the batches.
func (l *loop) prune(ctx context.Context, r Retention) (int64, error) {
	began := time.Now()
	p, err := l.db.Prune(ctx, outbox.PruneRequest{
		Delivered: r.Delivered, Quarantined: r.Quarantined, Batch: r.Batch,
		Progress: func(int64) {
			sleep(ctx, min(pruneRest*time.Since(began), time.Second))
			began = time.Now()
		},
	})
	return p.Delivered + p.Quarantined, err
}

// countRows refreshes the row counts until ctx ends.
func (l *loop) countRows(ctx context.Context) {
	for {
		began := time.Now()
		st, err := l.db.Stats(ctx)
		took := time.Since(began)
		// A failure shows in the loop as well, which tells of it.
		if err == nil {
			l.r.status.counted(&st)
			l.m.rows.set(&st, began.Add(took))
		}
		if !sleep(ctx, min(max(countShare*took, minCountEvery), maxCountEvery)) {
			return
		}
	}
}

// sleep waits for d. False: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
