package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RowResult is one row's own outcome of an operator action: nil, ErrNotFound,
// *TransitionError, or *SQLError for a row that a constraint keeps as it is.
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
//
// Columns that the new state must not have are cleared whatever they hold, and
// others are not touched, so that a row which somebody spoiled can be moved too.
const requeuePartSQL = `
UPDATE dovecote_deliveries SET state = 'pending', available_at = ?1, attempts = 0,
	quarantined_at = NULL, quarantine_reason = NULL, delivered_at = NULL, ` + clearClaimSQL

const ofQuarantinedSQL = `
WHERE event_row_id = ?2 AND state = 'quarantined'`

var requeueSQL = []tenantSQL{
	byTenant(2, requeuePartSQL+ofQuarantinedSQL+` AND last_failure_code IS NOT NULL AND last_failure_detail IS NOT NULL`),
	byTenant(2, requeuePartSQL+`, last_failure_code = coalesce(last_failure_code, '`+RequeuedCode+`'),
	last_failure_detail = coalesce(last_failure_detail, quarantine_reason, '')`+ofQuarantinedSQL),
}

// Requeue moves quarantined rows to pending, due now, attempts 0, last failure
// kept ([Delivery.Requeued] tells such rows, and [RequeuedCode] is there where no
// failure was). Each row has its own outcome, in the order of rows. Many rows go in
// transactions of 500; after an error the results returned stand.
func (h *Handle) Requeue(ctx context.Context, rows []int64) ([]RowResult, error) {
	return h.operate(ctx, "requeue", requeueSQL, rows)
}

var dismissSQL = []tenantSQL{byTenant(3, `
UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = ?1, quarantine_reason = ?3,
	delivered_at = NULL, `+clearClaimSQL+`
WHERE event_row_id = ?2 AND state = 'pending'`)}

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
	return h.operate(ctx, "quarantine", dismissSQL, rows, storedText(OperatorCode+": "+reason, maxReason))
}

// operate moves each row by the first of the queries that changes it. Their
// arguments are the operation time, the row and more.
func (h *Handle) operate(ctx context.Context, op string, queries []tenantSQL, rows []int64, more ...any) ([]RowResult, error) {
	results := make([]RowResult, 0, len(rows))
	for batch := range slices.Chunk(rows, writeBatch) {
		var done []RowResult
		_, err := h.store.write(ctx, op, func(ctx context.Context, t *txn) error {
			done = done[:0]
			for _, row := range batch {
				outcome, err := h.operateOne(ctx, t, queries, row, more)
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

func (h *Handle) operateOne(ctx context.Context, t *txn, queries []tenantSQL, row int64, more []any) (outcome, err error) {
	for _, q := range queries {
		query, args := h.pick(q, append([]any{t.now, row}, more...)...)
		n, err := t.changed(ctx, query, args...)
		switch {
		case isConstraint(err):
			return wrapSQL(t.op, err), nil
		case err != nil:
			return nil, err
		case n > 0:
			return nil, nil
		}
	}
	return h.refusal(ctx, t, row)
}
