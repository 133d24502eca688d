package outbox

import (
	"context"
	"errors"
	"time"
)

// Exchanged is the result of an exchange.
type Exchanged struct {
	Settled  []Settled
	Claimed  []Claimed
	ClaimErr error         // the claim's own failure; the settlements stand
	Held     time.Duration // how long the writer slot was held
	Age      time.Duration // time since the operation time was read, which the leases count from
}

// Exchange settles batch and then claims, in one writer transaction. A claim
// with Limit 0 claims nothing. The claim runs inside a savepoint: when it fails,
// ClaimErr is set and the settlements are committed all the same. The error is
// for what took back both, or for arguments out of bounds, before anything was
// done. A claim of many rows reads them before it takes the writer slot.
// With neither settlements nor a claim nothing is done.
func (h *Handle) Exchange(ctx context.Context, batch []Settlement, claim ClaimRequest) (Exchanged, error) {
	if err := validateBatch(batch); err != nil {
		return Exchanged{}, err
	}
	if claim.Limit == 0 && len(batch) == 0 {
		return Exchanged{}, nil
	}
	if claim.Limit != 0 {
		if err := claim.validate(); err != nil {
			return Exchanged{}, err
		}
	}
	ahead := h.readAhead(ctx, claim)
	var x Exchanged
	var began time.Time
	held, err := h.store.write(ctx, "exchange", func(ctx context.Context, t *txn) (err error) {
		x, began = Exchanged{}, t.began
		if x.Settled, err = h.settle(ctx, t, batch); err != nil || claim.Limit == 0 {
			return err
		}
		batch := ahead
		ahead = nil // once: if it is out of date, two would be in memory
		x.Claimed, x.ClaimErr, err = h.claimApart(ctx, t, claim, batch)
		return err
	})
	if err != nil {
		return Exchanged{}, err
	}
	x.Held, x.Age = held, time.Since(began)
	return x, nil
}

const (
	savepointSQL = `SAVEPOINT claim`
	releaseClaim = `RELEASE claim`
	undoClaim    = `ROLLBACK TO claim`
)

// claimApart claims so that a failure leaves the transaction as it was before: the
// failure is the first error. The second is for what spoils the transaction.
func (h *Handle) claimApart(ctx context.Context, t *txn, r ClaimRequest, ahead *claimBatch) (claimed []Claimed, failure, err error) {
	if _, err := t.exec(ctx, savepointSQL); err != nil {
		return nil, nil, err
	}
	done, failure := ahead.leaseAhead(ctx, t, r)
	switch {
	case done:
		claimed = ahead.rows
	case failure == nil:
		claimed, failure = h.claim(ctx, t, r)
	}
	switch {
	case FaultOf(failure) == FaultBusy, ctx.Err() != nil:
		return nil, nil, failure // the whole operation is tried again, or ends
	case failure != nil:
		if _, err := t.exec(ctx, undoClaim); err != nil {
			return nil, nil, errors.Join(failure, err)
		}
		claimed, failure = nil, wrapSQL("claim", failure)
	}
	_, err = t.exec(ctx, releaseClaim)
	return claimed, failure, err
}
