package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Finding is one broken invariant of the data.
type Finding struct {
	Row    int64  // 0: the whole file
	Rule   string // one of the Check constants
	Detail string // for a person; never data or a token
}

// The rules of Check.
const (
	CheckIntegrity    = "integrity"              // SQLite finds the file damaged
	CheckConstraint   = "constraint"             // rows were written with constraints off
	CheckForeignKey   = "foreign_key"            // SQLite finds a broken reference
	CheckOrphan       = "orphan"                 // an event without a delivery
	CheckNoEvent      = "delivery_without_event" // a delivery without an event
	CheckTenant       = "tenant_differs"         // event and delivery have different tenants
	CheckRowID        = "row_id"                 // not above 0
	CheckUndecodable  = "undecodable"            // an event that cannot be published
	CheckTextForBlob  = "text_for_blob"          // data stored as TEXT
	CheckState        = "state"                  // no known state
	CheckStateColumns = "state_columns"          // a column set that the state excludes, or the reverse
	CheckFailurePair  = "failure_pair"           // failure code without detail, or the reverse
	CheckAttempts     = "attempts"               // not an integer of at least 0
	CheckTime         = "time_form"              // a delivery's time of another form
	CheckToken        = "token_form"             // a claim token that is not a BLOB of 16 bytes
	CheckText         = "text_form"              // a delivery's text that is none, or too long
	CheckFarLease     = "far_lease"              // a lease that ends later than the longest lease allows
)

// Limits of Check's findings.
const (
	defaultFindings = 100
	maxFindings     = 10_000
)

// Check verifies the invariants of the data (not of the schema, which Open
// does): one delivery for each event, tenants equal, the state table, value
// forms, decodable events, leases within bounds, SQLite's own integrity and
// foreign keys. limit (1..10,000) bounds the findings returned (0: 100). Read-only.
//
// It reads every row, each once, in short transactions, and holds one row at a
// time in memory; a file of millions of rows takes many seconds. Each finding was
// true when its row was read. What a claim refuses is among the findings, so that
// it can be quarantined; a handle of one tenant sees its tenant's rows only, but
// SQLite's integrity is that of the tables.
func (h *Handle) Check(ctx context.Context, limit int) ([]Finding, error) {
	if limit == 0 {
		limit = defaultFindings
	}
	if limit < 1 || limit > maxFindings {
		return nil, &InvalidLimitError{Value: limit, Min: 1, Max: maxFindings}
	}
	c := checker{handle: h, limit: limit}
	for _, part := range []func(context.Context) error{c.integrity, c.events, c.eventless, c.foreignKeys} {
		if c.full() {
			break
		}
		err := part(ctx)
		if FaultOf(err) == FaultDamaged {
			c.find(0, CheckIntegrity, "%v", err)
			break // nothing that is read now can be relied on
		}
		if err != nil {
			return c.findings, err
		}
	}
	return c.findings, nil
}

// checker collects findings.
type checker struct {
	handle   *Handle
	limit    int
	findings []Finding
	far      string // where leases end too late, for the transaction that reads
}

func (c *checker) full() bool { return len(c.findings) >= c.limit }

func (c *checker) find(row int64, rule, format string, args ...any) {
	if !c.full() {
		c.findings = append(c.findings, Finding{Row: row, Rule: rule, Detail: fmt.Sprintf(format, args...)})
	}
}

// integrity runs SQLite's own check of each table, which finds damaged pages, and
// constraints that rows do not keep.
func (c *checker) integrity(ctx context.Context) error {
	return c.handle.store.read(ctx, "check integrity", func(ctx context.Context, t *txn) error {
		for _, table := range outboxTables {
			found, err := texts(ctx, t.conn, `PRAGMA quick_check(`+table+`)`)
			if err != nil {
				return err
			}
			slices.Sort(found) // it says the same of each row
			for _, text := range slices.Compact(found) {
				switch {
				case text == "ok":
				case strings.HasPrefix(text, "CHECK constraint failed"), strings.HasPrefix(text, "NULL value in"):
					c.find(0, CheckConstraint, "%s", text)
				default:
					c.find(0, CheckIntegrity, "%s: %s", table, text)
				}
			}
		}
		return nil
	})
}

// checkChunk is how many rows one transaction reads.
const checkChunk = 1000

// events checks every event with its delivery.
func (c *checker) events(ctx context.Context) error {
	cursor, more := int64(minRow), true
	for more && !c.full() {
		more = false
		err := c.handle.store.read(ctx, "check rows", func(ctx context.Context, t *txn) error {
			c.far = formatTime(t.at.Add(maxLease))
			return c.handle.eachOfPage(ctx, t, cursor, maxRow, checkChunk, func(r *entryColumns) bool {
				cursor, more = r.row, true
				c.row(r)
				return !c.full()
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// row checks an event and its delivery.
func (c *checker) row(r *entryColumns) {
	if r.row <= 0 {
		c.find(r.row, CheckRowID, "row_id is not above 0")
	}
	if _, _, err := r.eventColumns.decode(r.row); err != nil {
		var bad *SerializationError
		errors.As(err, &bad)
		c.find(r.row, CheckUndecodable, "%s %s", bad.Field, bad.Detail)
	}
	if _, ok := r.eventColumns.data.v.(string); ok {
		c.find(r.row, CheckTextForBlob, "data is TEXT, not BLOB; it is published as it is")
	}
	if !r.delivery.Valid {
		c.find(r.row, CheckOrphan, "the event has no delivery; see reconcile")
		return
	}
	d := &r.deliveryColumns
	if !sameTenant(d.tenant, r.eventColumns.tenant) {
		c.find(r.row, CheckTenant, "the delivery's tenant is not that of the event")
	}
	c.state(r.row, d)
	c.forms(r.row, d)
	if expires, ok := d.claimExpires.(string); ok && d.state == string(InClaim) && expires > c.far {
		c.find(r.row, CheckFarLease, "the claim expires at %s, more than %v from now; only an operator can end it", excerpt(expires), maxLease)
	}
}

// state checks the state table.
func (c *checker) state(row int64, d *deliveryColumns) {
	text, _ := d.state.(string)
	if checkState(text) != nil {
		c.find(row, CheckState, "state is %s", shown(d.state))
		return
	}
	for _, s := range []struct {
		column string
		state  State
		value  any
	}{
		{"claim_token", InClaim, d.token},
		{"claimed_by", InClaim, d.claimedBy},
		{"claim_expires_at", InClaim, d.claimExpires},
		{"delivered_at", Delivered, d.deliveredAt},
		{"quarantined_at", Quarantined, d.quarantinedAt},
		{"quarantine_reason", Quarantined, d.reason},
	} {
		switch set, want := s.value != nil, s.state == State(text); {
		case set && !want:
			c.find(row, CheckStateColumns, "%s is set although the row is %s", s.column, text)
		case want && !set:
			c.find(row, CheckStateColumns, "%s is NULL although the row is %s", s.column, text)
		}
	}
}

// forms checks the forms of a delivery's values.
func (c *checker) forms(row int64, d *deliveryColumns) {
	if (d.failureCode == nil) != (d.failureDetail == nil) {
		c.find(row, CheckFailurePair, "last_failure_code and last_failure_detail are not both set or both NULL")
	}
	if n, ok := d.attempts.(int64); !ok || n < 0 {
		c.find(row, CheckAttempts, "attempts is %s, not an integer of at least 0", shown(d.attempts))
	}
	if d.token != nil && d.token != goodToken {
		c.find(row, CheckToken, "claim_token is %v, not %s", d.token, goodToken)
	}
	for _, t := range []struct {
		column   string
		value    any
		required bool
	}{
		{"available_at", d.availableAt, true},
		{"claim_expires_at", d.claimExpires, false},
		{"delivered_at", d.deliveredAt, false},
		{"quarantined_at", d.quarantinedAt, false},
	} {
		text, _ := t.value.(string)
		if _, ok := parseTime(text); !ok && (t.value != nil || t.required) {
			c.find(row, CheckTime, "%s is %s, not YYYY-MM-DDTHH:MM:SS.ffffffZ", t.column, shown(t.value))
		}
	}
	for _, t := range []struct {
		column string
		value  any
		limit  int
	}{
		{"claimed_by", d.claimedBy, 255},
		{"last_failure_code", d.failureCode, maxCode},
		{"last_failure_detail", d.failureDetail, maxDetail},
		{"quarantine_reason", d.reason, maxReason},
	} {
		switch text, ok := t.value.(string); {
		case !ok && t.value != nil:
			c.find(row, CheckText, "%s is %s, not TEXT", t.column, storageClass(t.value))
		case len(text) > t.limit:
			c.find(row, CheckText, "%s has %d bytes, limit %d", t.column, len(text), t.limit)
		}
	}
}

// shown is a stored value in a finding.
func shown(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", excerpt(v))
	case int64, float64:
		return fmt.Sprint(v)
	}
	return storageClass(v)
}

const eventlessSQL = `
SELECT d.event_row_id FROM dovecote_deliveries d
WHERE NOT EXISTS (SELECT 1 FROM dovecote_events e WHERE e.row_id = d.event_row_id)%s LIMIT ?`

// eventless finds deliveries without an event.
func (c *checker) eventless(ctx context.Context) error {
	scope, tenant := c.handle.scope("d.tenant_id")
	return c.handle.store.read(ctx, "check deliveries", func(ctx context.Context, t *txn) error {
		rows, err := readRows(ctx, t.conn, fmt.Sprintf(eventlessSQL, scope), append(tenant, c.limit)...)
		for _, row := range rows {
			c.find(row, CheckNoEvent, "the delivery has no event: nothing can be published")
		}
		return err
	})
}

const foreignKeysSQL = `SELECT coalesce(rowid, 0) FROM pragma_foreign_key_check('dovecote_deliveries') LIMIT ?`

// foreignKeys adds what SQLite finds beyond the rows that have been named.
func (c *checker) foreignKeys(ctx context.Context) error {
	if c.handle.tenant != "" {
		return nil // the rows cannot be told by tenant
	}
	return c.handle.store.read(ctx, "check foreign keys", func(ctx context.Context, t *txn) error {
		rows, err := readRows(ctx, t.conn, foreignKeysSQL, c.limit)
		for _, row := range rows {
			if !slices.ContainsFunc(c.findings, func(f Finding) bool {
				return f.Row == row && (f.Rule == CheckNoEvent || f.Rule == CheckTenant)
			}) {
				c.find(row, CheckForeignKey, "the delivery refers to no event of its tenant")
			}
		}
		return err
	})
}
