package outbox

import (
	"fmt"
	"time"
)

// deliveryColumnsSQL selects the columns that deliveryColumns receives, in the
// order of its dest. The deliveries table must have the alias d. Of a token,
// nothing but its form is read.
const deliveryColumnsSQL = `d.tenant_id, d.state, d.available_at, d.attempts,
	CASE WHEN d.claim_token IS NOT NULL THEN typeof(d.claim_token) || ' of ' || length(d.claim_token) || ' bytes' END,
	d.claimed_by, d.claim_expires_at, d.last_failure_code, d.last_failure_detail,
	d.delivered_at, d.quarantined_at, d.quarantine_reason`

// deliveryColumns receives one row of dovecote_deliveries exactly as the driver
// hands it over.
type deliveryColumns struct {
	tenant, state, availableAt, attempts, token any
	claimedBy, claimExpires                     any
	failureCode, failureDetail                  any
	deliveredAt, quarantinedAt, reason          any
}

func (c *deliveryColumns) dest() []any {
	return []any{
		&c.tenant, &c.state, &c.availableAt, &c.attempts, &c.token,
		&c.claimedBy, &c.claimExpires, &c.failureCode, &c.failureDetail,
		&c.deliveredAt, &c.quarantinedAt, &c.reason,
	}
}

// goodToken is what deliveryColumnsSQL makes of a token in order.
const goodToken = "blob of 16 bytes"

// decode turns the stored columns of a row into a delivery. The error is a
// *SerializationError for the first bad column; the delivery then holds the
// columns that are good. eventTenant is the event's, as stored.
func (c *deliveryColumns) decode(row int64, eventTenant any) (Delivery, error) {
	d := decoder{row: row}
	if !sameTenant(c.tenant, eventTenant) {
		d.fail("tenant_id", "of the delivery is not that of the event")
	}
	delivery := Delivery{
		State:            State(d.text("state", c.state, checkState)),
		AvailableAt:      d.time("available_at", c.availableAt),
		Attempts:         d.count("attempts", c.attempts),
		ClaimedBy:        d.optional("claimed_by", c.claimedBy, anyText),
		ClaimExpires:     d.optionalTime("claim_expires_at", c.claimExpires),
		FailureCode:      d.optional("last_failure_code", c.failureCode, anyText),
		FailureDetail:    d.optional("last_failure_detail", c.failureDetail, anyText),
		DeliveredAt:      d.optionalTime("delivered_at", c.deliveredAt),
		QuarantinedAt:    d.optionalTime("quarantined_at", c.quarantinedAt),
		QuarantineReason: d.optional("quarantine_reason", c.reason, anyText),
	}
	if c.token != nil && c.token != goodToken {
		d.fail("claim_token", fmt.Sprintf("is %v, not %s", c.token, goodToken))
	}
	return delivery, d.result()
}

func sameTenant(a, b any) bool {
	s, ok1 := a.(string)
	t, ok2 := b.(string)
	return ok1 && ok2 && s == t
}

// result is the first error, without a typed nil.
func (d *decoder) result() error {
	if d.err == nil {
		return nil
	}
	return d.err
}

// count takes an INTEGER that is not negative.
func (d *decoder) count(column string, v any) int64 {
	n, ok := v.(int64)
	switch {
	case !ok:
		d.fail(column, "is "+storageClass(v)+", not INTEGER")
	case n < 0:
		d.fail(column, fmt.Sprintf("is %d, less than 0", n))
	}
	return n
}

func (d *decoder) optionalTime(column string, v any) time.Time {
	if v == nil {
		return time.Time{}
	}
	return d.time(column, v)
}

// anyText is the check of columns that only people read.
func anyText(string) *InvalidEventError { return nil }

func checkState(s string) *InvalidEventError {
	switch State(s) {
	case Pending, InClaim, Delivered, Quarantined:
		return nil
	}
	return malformed("is %q, no state", excerpt(s))
}
