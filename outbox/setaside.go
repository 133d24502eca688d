package outbox

import (
	"context"
	"fmt"
)

var setAsideSQL = byTenant(3, `
UPDATE dovecote_deliveries
SET state = 'quarantined', quarantined_at = ?1, quarantine_reason = ?2, delivered_at = NULL,
    claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL
WHERE event_row_id = ?3
  AND (state = 'pending' AND available_at <= ?1 OR state = 'claimed' AND claim_expires_at <= ?1)`)

// SetAside quarantines those of rows that satisfy the candidate predicate
// now (pending and due, or claimed and expired), and returns their ids. The
// reason is the row's code, then its error in words. At most 1,000 rows.
func (h *Handle) SetAside(ctx context.Context, rows []BadRow) ([]int64, error) {
	if len(rows) > maxClaim {
		return nil, &InvalidLimitError{len(rows), 0, maxClaim}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	var aside []int64
	_, err := h.store.write(ctx, "set aside", func(ctx context.Context, t *txn) error {
		aside = make([]int64, 0, len(rows))
		for _, b := range rows {
			reason := b.Code
			if b.Err != nil {
				reason += ": " + b.Err.Error()
			}
			query, args := h.pick(setAsideSQL, t.now, storedText(reason, maxReason), b.Row)
			n, err := t.changed(ctx, query, args...)
			if err != nil {
				return fmt.Errorf("row %d: %w", b.Row, err)
			}
			if n == 1 {
				aside = append(aside, b.Row)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return aside, nil
}
