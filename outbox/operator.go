package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RowResult is one row's own outcome of an operator action: nil, ErrNotFound or
// *TransitionError.
type RowResult struct {
	Row int64
	Err error
}

// RequeuedCode is the failure code of a requeued row for which no failure was
// recorded; the detail is then the reason of its quarantine.
const RequeuedCode = "requeued"

// OperatorCode is the code of a quarantine by an operator.
const OperatorCode = "operator"

// A row that failed before its quarantine keeps that failure. One that did not
// (it was quarantined at its first attempt, or by an operator) gets the reason of
// the quarantine for it: so every requeued row shows, by a failure without an
// attempt, that it was requeued and why that was needed.
const requeueSQL = `
UPDATE dovecote_deliveries AS d SET state = 'pending', available_at = ?, attempts = 0,
	last_failure_detail = CASE WHEN last_failure_code IS NULL THEN quarantine_reason ELSE last_failure_detail END,
	last_failure_code = coalesce(last_failure_code, '` + RequeuedCode + `'),
	quarantined_at = NULL, quarantine_reason = NULL
WHERE event_row_id = ? AND state = 'quarantined'%s`

// Requeue moves quarantined rows to pending, due now, attempts 0, last failure
// kept ([Delivery.Requeued] tells such rows, and [RequeuedCode] is there where no
// failure was). Each row has its own outcome, in the order of rows. Many rows go in
// transactions of 500; after an error the results returned stand.
func (h *Handle) Requeue(ctx context.Context, rows []int64) ([]RowResult, error) {
	return h.operate(ctx, "requeue", requeueSQL, rows, func(t *txn, row int64) []any {
		return []any{t.now, row}
	})
}

const dismissSQL = `
UPDATE dovecote_deliveries AS d SET state = 'quarantined', quarantined_at = ?, quarantine_reason = ?
WHERE event_row_id = ? AND state = 'pending'%s`

// errNoReason asks for what the next operator will want to know.
var errNoReason = errors.New("quarantine: a reason is required")

// QuarantinePending moves pending rows to quarantined, with the reason
// "operator: " and the given one, cut to 2,048 bytes. It never touches claimed
// or delivered rows. An empty reason is an error. Outcomes and transactions
// are as with Requeue.
func (h *Handle) QuarantinePending(ctx context.Context, rows []int64, reason string) ([]RowResult, error) {
	reason = strings.TrimSpace(reason)
	if reason == "" {
		return nil, errNoReason
	}
	if p := checkText(reason); p != nil {
		return nil, fmt.Errorf("quarantine: reason: %s", p.problem())
	}
	reason = clip(OperatorCode+": "+reason, maxReason)
	return h.operate(ctx, "quarantine", dismissSQL, rows, func(t *txn, row int64) []any {
		return []any{t.now, reason, row}
	})
}

// maxReason is the column's bound, in bytes.
const maxReason = 2048

// operate runs query for each row. The arguments come from args, and after them
// the handle's tenant.
func (h *Handle) operate(ctx context.Context, op, query string, rows []int64, args func(*txn, int64) []any) ([]RowResult, error) {
	scope, tenant := h.scope("d.tenant_id")
	query = fmt.Sprintf(query, scope)
	results := make([]RowResult, 0, len(rows))
	for batch := range slices.Chunk(rows, writeBatch) {
		var done []RowResult
		_, err := h.store.write(ctx, op, func(ctx context.Context, t *txn) error {
			done = done[:0]
			for _, row := range batch {
				n, err := t.changed(ctx, query, append(args(t, row), tenant...)...)
				var outcome error
				if err == nil && n == 0 {
					outcome, err = h.refusal(ctx, t, row)
				}
				if err != nil {
					return err
				}
				done = append(done, RowResult{row, outcome})
			}
			return nil
		})
		if err != nil {
			return results, err
		}
		results = append(results, done...)
	}
	return results, nil
}

const stateSQL = `SELECT CAST(d.state AS TEXT) FROM dovecote_deliveries d WHERE d.event_row_id = ?%s`

// refusal says why an operator action changed nothing.
func (h *Handle) refusal(ctx context.Context, t *txn, row int64) (outcome, err error) {
	scope, tenant := h.scope("d.tenant_id")
	rows, err := t.query(ctx, fmt.Sprintf(stateSQL, scope), append([]any{row}, tenant...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return ErrNotFound, rows.Err()
	}
	var state string
	if err := rows.Scan(&state); err != nil {
		return nil, err
	}
	return &TransitionError{Row: row, State: State(state)}, rows.Err()
}
