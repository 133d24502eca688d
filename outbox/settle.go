package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Action is what becomes of a claimed row.
type Action uint8

const (
	Ack Action = iota + 1
	Retry
	Release
	Renew
	Quarantine
)

// Failure is recorded by a retry. Both are cut to their bounds (128 and 2,048
// bytes) at a rune boundary.
type Failure struct{ Code, Detail string }

// Settlement settles one claim by its token.
type Settlement struct {
	Row     int64
	Token   Token
	Action  Action
	Delay   time.Duration // Retry: backoff, Release: delay, 0..30 days; Renew: lease; whole milliseconds
	Failure Failure       // Retry only
	Reason  string        // Quarantine only, cut to 2,048 bytes
}

// Settled is one settlement's own outcome.
type Settled struct {
	Row     int64
	Err     error     // nil, ErrNotFound, *TransitionError or ErrLostClaim; *SQLError for a row that a constraint keeps as it is
	Expires time.Time // Renew: the new expiry
}

// The bounds of a settlement.
const (
	maxSettle = 4096
	maxDelay  = 30 * 24 * time.Hour
	maxCode   = 128
	maxDetail = 2048
	maxReason = 2048
)

// Settle settles many rows in one transaction, each by its own token with its
// own outcome, in order. One lost claim never undoes its neighbours. At most 4,096
// settlements; a duration out of bounds is an *InvalidDurationError, and nothing
// is settled.
func (h *Handle) Settle(ctx context.Context, batch []Settlement) ([]Settled, error) {
	if err := validateBatch(batch); err != nil || len(batch) == 0 {
		return nil, err
	}
	var settled []Settled
	_, err := h.store.write(ctx, "settle", func(ctx context.Context, t *txn) (err error) {
		settled, err = h.settle(ctx, t, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	return settled, nil
}

func validateBatch(batch []Settlement) error {
	if len(batch) > maxSettle {
		return &InvalidLimitError{len(batch), 0, maxSettle}
	}
	for i := range batch {
		if err := batch[i].validate(); err != nil {
			return fmt.Errorf("row %d: %w", batch[i].Row, err)
		}
	}
	return nil
}

func (s *Settlement) validate() error {
	switch s.Action {
	case Ack, Quarantine:
		return nil
	case Retry:
		return checkDuration("backoff", s.Delay, 0, maxDelay)
	case Release:
		return checkDuration("delay", s.Delay, 0, maxDelay)
	case Renew:
		return checkDuration("lease", s.Delay, time.Millisecond, maxLease)
	}
	return fmt.Errorf("unknown action %d", s.Action)
}

// settle settles batch within the transaction.
func (h *Handle) settle(ctx context.Context, t *txn, batch []Settlement) ([]Settled, error) {
	settled := make([]Settled, 0, len(batch))
	for len(batch) > 0 {
		n := acks(batch)
		if n >= minSet {
			done, err := h.ackSet(ctx, t, batch[:n])
			if err != nil {
				return nil, err
			}
			if done {
				for _, s := range batch[:n] {
					settled = append(settled, Settled{Row: s.Row})
				}
				batch = batch[n:]
				continue
			}
		}
		for i := range batch[:max(n, 1)] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			done, err := h.settleOne(ctx, t, &batch[i])
			if err != nil {
				return nil, fmt.Errorf("row %d: %w", batch[i].Row, err)
			}
			settled = append(settled, done)
		}
		batch = batch[max(n, 1):]
	}
	return settled, nil
}

// acks counts the acknowledgements at the head of batch.
func acks(batch []Settlement) int {
	for i := range batch {
		if batch[i].Action != Ack {
			return i
		}
	}
	return len(batch)
}

// Each change is fenced: ?1 is the operation time, ?2 the row, ?3 the token. The
// primary key finds the row, whatever the statistics say: of a statement on one table that
// names one row id, and has no INDEXED clause, SQLite makes no other plan.
const fenceSQL = `
WHERE event_row_id = ?2 AND state = 'claimed' AND claim_token = ?3 AND claim_expires_at > ?1`

const clearClaimSQL = `claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL`

var (
	ackSQL = byTenant(3, `UPDATE dovecote_deliveries
SET state = 'delivered', delivered_at = ?1, `+clearClaimSQL+fenceSQL)
	retrySQL = byTenant(6, `UPDATE dovecote_deliveries
SET state = 'pending', available_at = ?4, last_failure_code = ?5, last_failure_detail = ?6, `+clearClaimSQL+fenceSQL)
	releaseSQL = byTenant(4, `UPDATE dovecote_deliveries
SET state = 'pending', available_at = ?4, `+clearClaimSQL+fenceSQL)
	renewSQL = byTenant(4, `UPDATE dovecote_deliveries
SET claim_expires_at = ?4`+fenceSQL)
	quarantineSQL = byTenant(4, `UPDATE dovecote_deliveries
SET state = 'quarantined', quarantined_at = ?1, quarantine_reason = ?4, `+clearClaimSQL+fenceSQL)
)

// settleOne settles one claim. The error is for what spoils the transaction.
func (h *Handle) settleOne(ctx context.Context, t *txn, s *Settlement) (Settled, error) {
	done := Settled{Row: s.Row}
	later := t.at.Add(s.Delay)
	var query string
	args := append(make([]any, 0, 7), t.now, s.Row, s.Token[:])
	switch s.Action {
	case Ack:
		query, args = h.pick(ackSQL, args...)
	case Retry:
		query, args = h.pick(retrySQL, append(args, formatTime(later),
			storedText(s.Failure.Code, maxCode), storedText(s.Failure.Detail, maxDetail))...)
	case Release:
		query, args = h.pick(releaseSQL, append(args, formatTime(later))...)
	case Renew:
		query, args = h.pick(renewSQL, append(args, formatTime(later))...)
	case Quarantine:
		query, args = h.pick(quarantineSQL, append(args, storedText(s.Reason, maxReason))...)
	}
	n, err := t.changed(ctx, query, args...)
	switch {
	case isConstraint(err):
		done.Err = wrapSQL(t.op, err)
	case err != nil:
		return done, err
	case n == 0:
		done.Err, err = h.classify(ctx, t, s.Row)
		return done, err
	case s.Action == Renew:
		done.Expires = later
	}
	return done, nil
}

var classifySQL = byTenant(1, `SELECT state FROM dovecote_deliveries WHERE event_row_id = ?1`)

// classify tells why a settlement changed nothing, in this order: no such row; not
// claimed; the token is another's, or the claim has expired.
func (h *Handle) classify(ctx context.Context, t *txn, row int64) (outcome, err error) {
	outcome, err = h.refusal(ctx, t, row)
	if illegal := (*TransitionError)(nil); errors.As(outcome, &illegal) && illegal.State == InClaim {
		return ErrLostClaim, err
	}
	return outcome, err
}

// refusal tells that a row is not there, or else in which state it is.
func (h *Handle) refusal(ctx context.Context, t *txn, row int64) (outcome, err error) {
	query, args := h.pick(classifySQL, row)
	var state State
	err = t.queryRow(ctx, query, args...).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound, nil
	case err != nil:
		return nil, err
	}
	return &TransitionError{row, state}, nil
}

// storedText makes a text for a person fit its column: valid UTF-8, without NUL, at
// most limit bytes.
func storedText(s string, limit int) string {
	s = strings.ToValidUTF8(clip(s, limit), "")
	return strings.ReplaceAll(s, "\x00", "")
}

// clip cuts s to at most n bytes at a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
