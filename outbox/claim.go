package outbox

import (
	"context"
	"fmt"
	"time"
)

// Token is a claim's fencing token. It never prints itself.
type Token [16]byte

func (Token) String() string { return "[token]" }

// GoString keeps the token out of %#v.
func (Token) GoString() string { return "[token]" }

// Claimed is an event leased to a worker.
type Claimed struct {
	Row         int64
	Token       Token
	Attempts    int64 // claims so far, this one included
	Expires     time.Time
	EnqueuedAt  time.Time
	Reclaimed   bool   // taken from another claim's expired lease
	LastFailure string // last_failure_code as it stood before this claim, "" if none
	Event       Event
}

// ClaimRequest says what to claim.
type ClaimRequest struct {
	Worker   string        // 1..255 bytes
	Lease    time.Duration // whole milliseconds, > 0, <= 24 h
	Limit    int           // 1..1000
	MaxBytes int64         // stop before the batch's data exceeds this; the first row always fits; 0: no bound
}

// The bounds of a claim.
const (
	maxClaim  = 1000
	maxLease  = 24 * time.Hour
	maxWorker = 255
)

// Claim leases up to limit due events to worker for lease, earliest due first,
// returned in ascending row id. Nothing due is an empty slice and a nil error.
// A batch with a bad row is a *BadRowsError that names every bad row and
// changes nothing. ErrBusyExhausted: the writer slot stayed taken.
func (h *Handle) Claim(ctx context.Context, worker string, lease time.Duration, limit int) ([]Claimed, error) {
	r := ClaimRequest{Worker: worker, Lease: lease, Limit: limit}
	if err := r.validate(); err != nil {
		return nil, err
	}
	var claimed []Claimed
	_, err := h.store.write(ctx, "claim", func(ctx context.Context, t *txn) (err error) {
		claimed, err = h.claim(ctx, t, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

func (r *ClaimRequest) validate() error {
	switch {
	case r.Limit < 1 || r.Limit > maxClaim:
		return &InvalidLimitError{r.Limit, 1, maxClaim}
	case r.Worker == "":
		return &InvalidEventError{Field: "worker", Rule: RuleEmpty}
	case len(r.Worker) > maxWorker:
		return &InvalidEventError{Field: "worker", Rule: RuleTooLong, Limit: maxWorker, Actual: len(r.Worker)}
	}
	return checkDuration("lease", r.Lease, time.Millisecond, maxLease)
}

func checkDuration(name string, d, lowest, highest time.Duration) error {
	if d < lowest || d > highest || d%time.Millisecond != 0 {
		return &InvalidDurationError{name, d, lowest, highest}
	}
	return nil
}

// claim selects, prepares and only then changes the rows.
func (h *Handle) claim(ctx context.Context, t *txn, r ClaimRequest) ([]Claimed, error) {
	found, err := h.candidates(ctx, t, r.Limit)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	batch, err := load(ctx, t, found, r.MaxBytes)
	if err != nil {
		return nil, err
	}
	if err := h.store.drawTokens(batch); err != nil {
		return nil, err
	}
	batch.sort()
	return batch.rows, batch.lease(ctx, t, r)
}

const leaseSQL = `
UPDATE dovecote_deliveries
SET state = 'claimed', attempts = ?1, claim_token = ?2, claimed_by = ?3, claim_expires_at = ?4
WHERE event_row_id = ?5
  AND (state = 'pending' AND available_at <= ?6 OR state = 'claimed' AND claim_expires_at <= ?6)`

// lease writes the claims. A row whose stored columns contradict its state cannot
// be written, and is a bad row.
func (b *claimBatch) lease(ctx context.Context, t *txn, r ClaimRequest) error {
	if len(b.rows) >= minSet && len(b.errs) == 0 {
		switch n, err := b.leaseSet(ctx, t, leaseSetSQL, r); {
		case err != nil:
			return err
		case n == len(b.rows):
			return nil
		case n > 0:
			return vanished(len(b.rows) - n)
		}
	}
	expires := t.at.Add(r.Lease)
	stamp := formatTime(expires)
	for i := range b.rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := &b.rows[i]
		n, err := t.changed(ctx, leaseSQL, c.Attempts, c.Token[:], r.Worker, stamp, c.Row, t.now)
		switch {
		case isConstraint(err):
			b.bad(c.Row, &SerializationError{c.Row, "state", err.Error()})
			continue
		case err != nil:
			return fmt.Errorf("row %d: %w", c.Row, err)
		case n != 1:
			return fmt.Errorf("row %d: %w", c.Row, vanished(1))
		}
		c.Expires = expires
	}
	return b.verdict()
}

// vanished is for rows that are gone although the writer slot is held.
func vanished(n int) error { return fmt.Errorf("%d rows vanished while they were being claimed", n) }
