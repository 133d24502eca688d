package outbox

import (
	"context"
	"fmt"
	"slices"
)

// An orphan is an event that no delivery row names. The plus signs keep SQLite
// from going through the events themselves, with their data: it goes through
// their narrowest index instead, and looks each up among the deliveries.
const orphansSQL = `
SELECT +e.row_id FROM dovecote_events e
WHERE +e.row_id > ?%s AND NOT EXISTS (SELECT 1 FROM dovecote_deliveries d WHERE d.event_row_id = e.row_id)
ORDER BY 1 LIMIT ?`

// Orphans lists events without a delivery row, row id > after, up to limit
// (1..1000). No claim ever finds them: a producer wrote the one row without the
// other. The cost grows with the number of events.
func (h *Handle) Orphans(ctx context.Context, after int64, limit int) ([]int64, error) {
	if err := checkPageLimit(limit); err != nil {
		return nil, err
	}
	scope, tenant := h.scope("e.tenant_id")
	args := append(append([]any{after}, tenant...), limit)
	var orphans []int64
	err := h.store.read(ctx, "list orphans", func(ctx context.Context, t *txn) (err error) {
		orphans, err = readRows(ctx, t.conn, fmt.Sprintf(orphansSQL, scope), args...)
		return err
	})
	return orphans, err
}

const repairSQL = `
INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, available_at)
SELECT e.row_id, e.tenant_id, 'pending', ? FROM dovecote_events e
WHERE e.row_id = ?%s AND NOT EXISTS (SELECT 1 FROM dovecote_deliveries d WHERE d.event_row_id = e.row_id)`

// writeBatch bounds the rows of one transaction where an operation takes any
// number of them.
const writeBatch = 500

// Repair gives each named orphan a pending delivery, due now. Rows that are no orphans
// any more are left alone. It returns the rows repaired. Many rows are repaired
// in transactions of 500; after an error the rows returned stay repaired.
func (h *Handle) Repair(ctx context.Context, rows []int64) ([]int64, error) {
	scope, tenant := h.scope("e.tenant_id")
	query := fmt.Sprintf(repairSQL, scope)
	var repaired []int64
	for batch := range slices.Chunk(rows, writeBatch) {
		var done []int64
		_, err := h.store.write(ctx, "repair orphans", func(ctx context.Context, t *txn) error {
			done = done[:0]
			for _, row := range batch {
				n, err := t.changed(ctx, query, append([]any{t.now, row}, tenant...)...)
				if err != nil {
					return err
				}
				if n == 1 {
					done = append(done, row)
				}
			}
			return nil
		})
		if err != nil {
			return repaired, err
		}
		repaired = append(repaired, done...)
	}
	return repaired, nil
}
