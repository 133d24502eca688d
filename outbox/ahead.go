package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Reading and decoding a batch takes as long as leasing it. So an exchange does that
// before it takes the writer slot, which others then get sooner. What it has read may be
// out of date by the time it has the slot; the lease finds out, and the claim then does
// everything again, in the transaction. Expired claims are left to that, and so is a
// claim after one that did not get all that it asked for: it has little to read. Without
// a write-ahead log there is nothing to gain, for reading then keeps writers out too.

// readAhead reads and prepares a whole batch of pending rows. Nil: there is none, or
// something is wrong with it, which the claim itself will tell.
func (h *Handle) readAhead(ctx context.Context, r ClaimRequest) *claimBatch {
	if r.Limit < minSet || !h.store.deep.Load() || h.store.writer == nil || !h.store.writer.usesLog {
		return nil
	}
	var b *claimBatch
	err := h.store.probe.look(ctx, "read ahead", func(t *txn) error {
		err := t.readClock(ctx, h.store.options.Now)
		if err != nil {
			return err
		}
		found, err := h.candidates(ctx, t, r.Limit)
		if err != nil || len(found) < r.Limit {
			return err
		}
		b, err = load(ctx, t, found, r.MaxBytes)
		return err
	})
	if err != nil || b == nil || len(b.errs) > 0 || b.history || h.store.drawTokens(b) != nil {
		return nil
	}
	b.sort()
	return b
}

// leaseAheadSQL is leaseSetSQL for what was read ahead. Every claim counts an attempt, so
// a row that is still pending with as many attempts is as it was, unless an operator took
// it back to none, which leaves a failure. An event never changes. ?6 has each row's
// attempts, in digits.
var leaseAheadSQL = fmt.Sprintf(`UPDATE dovecote_deliveries AS d NOT INDEXED
SET state = 'claimed', attempts = d.attempts + 1, claim_token = %s, claimed_by = ?4, claim_expires_at = ?5%s
  AND d.state = 'pending' AND d.available_at <= ?1 AND (d.attempts > 0 OR d.last_failure_code IS NULL)
  AND d.attempts = CAST(substr(?6, %[3]d * j.key + 1, %[3]d) AS INTEGER)`, setToken, setJoin, countDigits)

// countDigits are enough for any count.
const countDigits = 19

// leaseAhead leases what was read ahead, in the claim's savepoint. False: not all of
// it is as it was, and nothing is done.
func (b *claimBatch) leaseAhead(ctx context.Context, t *txn, r ClaimRequest) (bool, error) {
	if b == nil {
		return false, nil
	}
	counts := make([]byte, 0, countDigits*len(b.rows))
	for i := range b.rows {
		counts = fmt.Appendf(counts, "%0*d", countDigits, b.rows[i].Attempts-1)
	}
	n, err := b.leaseSet(ctx, t, leaseAheadSQL, r, counts)
	if err == nil && n > 0 && n < len(b.rows) {
		_, err = t.exec(ctx, undoClaim)
	}
	return n == len(b.rows), err
}

func (b *claimBatch) sort() {
	slices.SortFunc(b.rows, func(x, y Claimed) int { return cmp.Compare(x.Row, y.Row) })
}
