package outbox

import (
	"context"
	"fmt"
	"slices"
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

const (
	pruneBatch = 500
	// A transaction ends early once it has events with this much data: each
	// page of it has to be given back.
	pruneBytes = 4 << 20
	// Deliveries looked at in one read, and old ones found by it.
	pruneScan = 20_000
	// A transaction ends early when it has held the writer slot this long, so
	// that a slow machine makes it shorter and not its neighbours wait.
	pruneHold = 8 * time.Millisecond
	// The shortest pause between two transactions.
	prunePause = 2 * time.Millisecond
)

// Prune removes old delivered and quarantined rows in bounded transactions,
// deliveries before events, never a pending or claimed row. Pruning ends replay
// detection for what it removed: the same event enqueued again is a new one. Row
// ids do not return.
//
// One pass goes through the deliveries in row id order, reading without the
// writer slot, and takes that slot for each batch of rows that are old enough;
// between two batches it leaves the slot to others for at least as long as it held
// it. Ages count on the database's clock from the start of the pass. Rows whose
// times are not of the stored form are left alone (Check names them). When ctx
// ends, or on an error, the counts say what was removed until then.
func (h *Handle) Prune(ctx context.Context, r PruneRequest) (Pruned, error) {
	if r.Batch == 0 {
		r.Batch = pruneBatch
	}
	if err := checkPageLimit(r.Batch); err != nil {
		return Pruned{}, err
	}
	for name, age := range map[string]time.Duration{"age of delivered rows": r.Delivered, "age of quarantined rows": r.Quarantined} {
		if age < 0 {
			return Pruned{}, fmt.Errorf("prune: %s: %v is negative", name, age)
		}
	}
	p := prune{handle: h, request: r}
	return p.run(ctx)
}

// prune is one pass.
type prune struct {
	handle  *Handle
	request PruneRequest
	// Rows that reached their state before these are old enough; "" is before
	// every stored time.
	delivered, quarantined string
	span                   int64 // row ids looked at in one read
	done                   Pruned
}

// oldRow is a row that is old enough.
type oldRow struct {
	row   int64
	state State
	bytes int // of its event's data
}

func (p *prune) run(ctx context.Context) (Pruned, error) {
	if p.request.Delivered == 0 && p.request.Quarantined == 0 {
		return p.done, nil
	}
	cursor, found, err := p.start(ctx)
	for err == nil && found {
		var old []oldRow
		var end int64
		old, end, found, err = p.scan(ctx, cursor)
		if err == nil {
			err = p.remove(ctx, old)
		}
		cursor = end
	}
	return p.done, err
}

const firstDeliverySQL = `SELECT coalesce(min(event_row_id), 0), count(*) FROM
	(SELECT event_row_id FROM dovecote_deliveries WHERE event_row_id > ? ORDER BY event_row_id LIMIT 1)`

// start fixes the ages, and finds the first delivery.
func (p *prune) start(ctx context.Context) (first int64, found bool, err error) {
	err = p.handle.store.read(ctx, "begin prune", func(ctx context.Context, t *txn) error {
		before := func(age time.Duration) string {
			if at := t.at.Add(-age); age > 0 && at.After(minTime) {
				return formatTime(at)
			}
			return ""
		}
		p.delivered, p.quarantined = before(p.request.Delivered), before(p.request.Quarantined)
		p.span = pruneScan
		// Where statistics keep SQLite from going through a range alone, one look
		// through the whole table costs less than many.
		if steps, err := t.plan(ctx, fmt.Sprintf(scanSQL, "", pruneScan)); err != nil {
			return err
		} else if slices.Contains(steps, "SCAN d") {
			p.span = maxRow
		}
		return t.conn.QueryRowContext(ctx, firstDeliverySQL, minRow).Scan(&first, &found)
	})
	return first, found, err
}

const minRow = -1 << 63

// oldPredicateSQL holds for a delivery d that is old enough; ?1 and ?2 are the
// times. A text that is no time, and a time of another form, are not old.
const oldPredicateSQL = `(d.state = 'delivered' AND d.delivered_at < ?1 AND d.delivered_at GLOB ` + timeGlob + `
	OR d.state = 'quarantined' AND d.quarantined_at < ?2 AND d.quarantined_at GLOB ` + timeGlob + `)`

const timeGlob = `'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]*Z'`

const scanSQL = `
SELECT d.event_row_id, d.state, coalesce((SELECT octet_length(e.data) FROM dovecote_events e WHERE e.row_id = d.event_row_id), 0)
FROM dovecote_deliveries d
WHERE d.event_row_id BETWEEN ?3 AND ?4 AND ` + oldPredicateSQL + `%s
ORDER BY d.event_row_id LIMIT %d`

// scan reads the rows that are old enough among the next ones from the row id
// from on, and where to go on.
func (p *prune) scan(ctx context.Context, from int64) (old []oldRow, next int64, found bool, err error) {
	to := int64(maxRow)
	if from < maxRow-p.span {
		to = from + p.span - 1
	}
	scope, tenant := p.handle.scope("d.tenant_id")
	args := append([]any{p.delivered, p.quarantined, from, to}, tenant...)
	err = p.handle.store.read(ctx, "look for old rows", func(ctx context.Context, t *txn) error {
		rows, err := t.conn.QueryContext(ctx, fmt.Sprintf(scanSQL, scope, pruneScan), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r oldRow
			if err := rows.Scan(&r.row, &r.state, &r.bytes); err != nil {
				return err
			}
			old = append(old, r)
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if len(old) == pruneScan {
			to = old[len(old)-1].row
		}
		return t.conn.QueryRowContext(ctx, firstDeliverySQL, to).Scan(&next, &found)
	})
	return old, next, found, err
}

// remove removes the rows in batches.
func (p *prune) remove(ctx context.Context, old []oldRow) error {
	for len(old) > 0 {
		n, bytes := 0, 0
		for n < len(old) && n < p.request.Batch && bytes < pruneBytes {
			bytes += old[n].bytes
			n++
		}
		n, err := p.batch(ctx, old[:n])
		if err != nil {
			return err
		}
		old = old[n:]
	}
	return nil
}

// batch removes rows in one transaction, or counts them. It returns how many it
// came to.
func (p *prune) batch(ctx context.Context, old []oldRow) (int, error) {
	if p.request.DryRun {
		p.count(old)
		return len(old), nil
	}
	var gone []oldRow
	var done int
	held, err := p.handle.store.write(ctx, "prune", func(ctx context.Context, t *txn) (err error) {
		gone, done, err = p.delete(ctx, t, old)
		return err
	})
	if err != nil {
		return 0, err
	}
	p.count(gone)
	if p.request.Progress != nil {
		p.request.Progress(p.done.Delivered + p.done.Quarantined)
	}
	pause := time.NewTimer(max(held, prunePause))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return done, ctx.Err()
	case <-pause.C:
		return done, nil
	}
}

func (p *prune) count(rows []oldRow) {
	for _, r := range rows {
		if r.state == Delivered {
			p.done.Delivered++
		} else {
			p.done.Quarantined++
		}
	}
}

// The rows were chosen outside of this transaction, so the delete looks again.
// One by one, because no statistics can then make SQLite read whole tables.
const (
	deleteDeliverySQL = `
DELETE FROM dovecote_deliveries AS d WHERE d.event_row_id = ?3 AND ` + oldPredicateSQL + `%s`
	deleteEventSQL = `DELETE FROM dovecote_events WHERE row_id = ?`
)

// delete removes those of the rows that are still old enough, each delivery
// before its event, until its time is up. It returns what is gone, and how many of
// the rows it came to.
func (p *prune) delete(ctx context.Context, t *txn, old []oldRow) (gone []oldRow, done int, err error) {
	scope, tenant := p.handle.scope("d.tenant_id")
	query := fmt.Sprintf(deleteDeliverySQL, scope)
	began := time.Now()
	for _, r := range old {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		n, err := t.changed(ctx, query, append([]any{p.delivered, p.quarantined, r.row}, tenant...)...)
		if err != nil {
			return nil, 0, err
		}
		if n > 0 {
			if _, err := t.exec(ctx, deleteEventSQL, r.row); err != nil {
				return nil, 0, err
			}
			gone = append(gone, r)
		}
		if done++; time.Since(began) >= pruneHold {
			break
		}
	}
	return gone, done, nil
}
