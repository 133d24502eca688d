package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// spoil runs statements as a writer that keeps no rule.
func spoil(tb testing.TB, db *sql.DB, script string) {
	tb.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	for _, query := range []string{
		`PRAGMA ignore_check_constraints = ON`, `PRAGMA foreign_keys = OFF`, script,
		`PRAGMA ignore_check_constraints = OFF`, `PRAGMA foreign_keys = ON`,
	} {
		if _, err := conn.ExecContext(context.Background(), query); err != nil {
			tb.Fatalf("%s: %v", query, err)
		}
	}
}

func onEvent(set string) string { return `UPDATE dovecote_events SET ` + set + ` WHERE row_id = 2` }
func onDelivery(set string) string {
	return `UPDATE dovecote_deliveries SET ` + set + ` WHERE event_row_id = 2`
}

// spoiledRows are forms in which a writer that keeps no rule can leave row 2, which
// is pending, each with what names it.
var spoiledRows = []struct {
	name, script string
	field        string   // DecodeErr's, "" for none
	rules        []string // Check's for the row
}{
	{"extensions that are no JSON", onEvent(`extensions = '{"a":'`), "extensions", []string{outbox.CheckUndecodable}},
	{"an extension of unknown type", onEvent(`extensions = '{"a":{"type":"float","value":1.5}}'`), "extensions", []string{outbox.CheckUndecodable}},
	{"an extension with a control character", onEvent(`extensions = '{"a":{"type":"string","value":"x\r\ny"}}'`), "extensions", []string{outbox.CheckUndecodable}},
	{"extensions as BLOB", onEvent(`extensions = x'7b7d'`), "extensions", []string{outbox.CheckUndecodable}},
	{"another specversion", onEvent(`specversion = '0.3'`), "specversion", []string{outbox.CheckUndecodable}},
	{"an empty type", onEvent(`event_type = ''`), "event_type", []string{outbox.CheckUndecodable}},
	{"a type with a newline", onEvent(`event_type = 'a' || char(10) || 'b'`), "event_type", []string{outbox.CheckUndecodable}},
	{"a type that is not UTF-8", onEvent(`event_type = CAST(x'ff41' AS TEXT)`), "event_type", []string{outbox.CheckUndecodable}},
	{"an identifier that is too long", onEvent(`event_id = printf('%.1100c', 'x')`), "event_id", []string{outbox.CheckUndecodable}},
	{"a stream that is none", onEvent(`stream = '-'`), "stream", []string{outbox.CheckUndecodable}},
	{"a time that is none", onEvent(`occurred_at = 'yesterday'`), "occurred_at", []string{outbox.CheckUndecodable}},
	{"a time with an offset", onEvent(`occurred_at = '2026-01-01T00:00:00+02:00'`), "occurred_at", []string{outbox.CheckUndecodable}},
	{"a time in seconds", onEvent(`enqueued_at = 1700000000`), "enqueued_at", []string{outbox.CheckUndecodable}},
	{"data of unknown kind", onEvent(`data_kind = 'xml'`), "data_kind", []string{outbox.CheckUndecodable}},
	{"data that is no JSON", onEvent(`data = x'7b'`), "data", []string{outbox.CheckUndecodable}},
	{"data that is a number", onEvent(`data = 7`), "data", []string{outbox.CheckUndecodable}},
	{"data without kind", onEvent(`data_kind = NULL`), "data_kind", []string{outbox.CheckUndecodable}},
	{"data without content type", onEvent(`datacontenttype = NULL`), "datacontenttype", []string{outbox.CheckUndecodable}},
	{"data as TEXT", onEvent(`data = '{"id":2}'`), "", []string{outbox.CheckTextForBlob}},
	{"a row id below 1", `UPDATE dovecote_events SET row_id = -2 WHERE row_id = 2; UPDATE dovecote_deliveries SET event_row_id = -2 WHERE event_row_id = 2`, "", []string{outbox.CheckRowID}},

	{"no delivery", `DELETE FROM dovecote_deliveries WHERE event_row_id = 2`, "", []string{outbox.CheckOrphan}},
	{"no event", `DELETE FROM dovecote_events WHERE row_id = 2`, "", []string{outbox.CheckNoEvent}},
	{"another tenant", onDelivery(`tenant_id = 'other'`), "tenant_id", []string{outbox.CheckTenant}},
	{"a tenant as BLOB", onDelivery(`tenant_id = x'61636d65'`), "tenant_id", []string{outbox.CheckTenant}},
	{"an unknown state", onDelivery(`state = 'sent'`), "state", []string{outbox.CheckState}},
	{"a state as BLOB", onDelivery(`state = x'00'`), "state", []string{outbox.CheckState}},
	{"negative attempts", onDelivery(`attempts = -3`), "attempts", []string{outbox.CheckAttempts}},
	{"attempts that are no number", onDelivery(`attempts = 'many'`), "attempts", []string{outbox.CheckAttempts}},
	{"broken attempts", onDelivery(`attempts = 1.5`), "attempts", []string{outbox.CheckAttempts}},
	{"a due time that is none", onDelivery(`available_at = 'soon'`), "available_at", []string{outbox.CheckTime}},
	{"a due time in seconds", onDelivery(`available_at = 1700000000`), "available_at", []string{outbox.CheckTime}},
	{"a due time without zone", onDelivery(`available_at = '2026-01-01 00:00:00'`), "available_at", []string{outbox.CheckTime}},
	{"a due time as BLOB", onDelivery(`available_at = x'00'`), "available_at", []string{outbox.CheckTime}},
	{"half a failure", onDelivery(`last_failure_code = 'x'`), "", []string{outbox.CheckFailurePair}},
	{"a failure as BLOB", onDelivery(`last_failure_code = x'00', last_failure_detail = 'd'`), "last_failure_code", []string{outbox.CheckText}},
	{"a failure that is too long", onDelivery(`last_failure_code = 'x', last_failure_detail = printf('%.2100c', 'x')`), "", []string{outbox.CheckText}},
	{"a pending row with a token", onDelivery(`claim_token = randomblob(16)`), "", []string{outbox.CheckStateColumns}},
	{"a pending row with every column", onDelivery(`claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = available_at, delivered_at = available_at, quarantined_at = available_at, quarantine_reason = 'r'`), "",
		slices.Repeat([]string{outbox.CheckStateColumns}, 6)},
	{"a claimed row without its columns", onDelivery(`state = 'claimed'`), "", slices.Repeat([]string{outbox.CheckStateColumns}, 3)},
	{"a short token", onDelivery(`state = 'claimed', claim_token = x'00', claimed_by = 'w', claim_expires_at = available_at`), "claim_token", []string{outbox.CheckToken}},
	{"a token as TEXT", onDelivery(`state = 'claimed', claim_token = '0123456789abcdef', claimed_by = 'w', claim_expires_at = available_at`), "claim_token", []string{outbox.CheckToken}},
	{"an expiry that is none", onDelivery(`state = 'claimed', claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = 'never'`), "claim_expires_at", []string{outbox.CheckTime, outbox.CheckFarLease}},
	{"a lease of ten years", onDelivery(`state = 'claimed', claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = '2036-01-01T00:00:00.000000Z'`), "", []string{outbox.CheckFarLease}},
	{"a delivered row without time", onDelivery(`state = 'delivered'`), "", []string{outbox.CheckStateColumns}},
	{"a delivered row with a bad time", onDelivery(`state = 'delivered', delivered_at = 0`), "delivered_at", []string{outbox.CheckTime}},
	{"a quarantined row without reason", onDelivery(`state = 'quarantined', quarantined_at = available_at`), "", []string{outbox.CheckStateColumns}},
	{"a quarantined row with a reason as BLOB", onDelivery(`state = 'quarantined', quarantined_at = available_at, quarantine_reason = x'ff'`), "quarantine_reason", []string{outbox.CheckText}},
}

// A row in any form is named, and stops neither the rows around it nor any
// operation that looks at rows.
func TestSpoiledRowsAreNamedAndStopNothing(t *testing.T) {
	for _, tc := range spoiledRows {
		t.Run(tc.name, func(t *testing.T) {
			c := &clock{noon}
			s := outboxtest.NewSpoiled(t, c.option)
			db := outboxtest.Producer(t, s.Path())
			outboxtest.Enqueue(t, db, events("acme", 3)...)
			must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z'`)
			spoil(t, db, tc.script)
			h := s.AllTenants()
			lookAtAll(t, h)

			for _, row := range []int64{2, -2} {
				e, err := h.Get(t.Context(), row)
				if errors.Is(err, outbox.ErrNotFound) {
					continue
				}
				var bad *outbox.SerializationError
				switch {
				case err != nil:
					t.Error(err)
				case tc.field == "" && e.DecodeErr != nil:
					t.Errorf("does not decode: %v", e.DecodeErr)
				case tc.field != "" && (!errors.As(e.DecodeErr, &bad) || bad.Field != tc.field || bad.Row != 2):
					t.Errorf("decode error %v, want one for %s", e.DecodeErr, tc.field)
				}
			}

			findings, err := h.Check(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			var rules []string
			for _, f := range findings {
				switch f.Row {
				case 2, -2:
					rules = append(rules, f.Rule)
				case 0:
					if f.Rule != outbox.CheckConstraint {
						t.Errorf("%+v", f)
					}
				default:
					t.Errorf("a row in order is named: %+v", f)
				}
			}
			if !slices.Equal(rules, tc.rules) {
				t.Errorf("rules %q, want %q", rules, tc.rules)
			}
		})
	}
}

// lookAtAll calls every operation that looks, on rows 1 and 3 in order and
// another in any form.
func lookAtAll(t *testing.T, h *outbox.Handle) {
	t.Helper()
	ctx := t.Context()
	page, err := h.Page(ctx, 0, 10)
	if err != nil || len(page) < 2 || page[0].Row != 1 || page[len(page)-1].Row != 3 || page[0].DecodeErr != nil {
		t.Errorf("page: %+v, %v", page, err)
	}
	for _, f := range []outbox.Filter{{}, {State: outbox.Pending}, {Code: "x"}, {State: outbox.Quarantined, Code: "other"}, {Stream: "orders"}} {
		list, err := h.List(ctx, f, 10)
		if err != nil || f.State == outbox.Pending && len(list) < 2 {
			t.Errorf("list %+v: %d, %v", f, len(list), err)
		}
		if _, err := h.SelectRows(ctx, f, 10); err != nil {
			t.Errorf("select %+v: %v", f, err)
		}
	}
	if st, err := h.Stats(ctx); err != nil || st.Pending < 2 {
		t.Errorf("stats: %+v, %v", st, err)
	}
	if st, err := h.Backlog(ctx); err != nil || st.Pending < 2 {
		t.Errorf("backlog: %+v, %v", st, err)
	}
	if _, err := h.Orphans(ctx, 0, 10); err != nil {
		t.Errorf("orphans: %v", err)
	}
	snap, err := h.Snapshot(ctx, outbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	if page, err := snap.Next(ctx); err != nil || len(page) < 2 {
		t.Errorf("snapshot: %d, %v", len(page), err)
	}
	if _, err := h.Prune(ctx, outbox.PruneRequest{Delivered: time.Hour, Quarantined: time.Hour, DryRun: true}); err != nil {
		t.Errorf("prune: %v", err)
	}
}

// Every pending row can be taken out of the way by an operator, and put back.
func TestSpoiledRowsCanBeQuarantinedAndRequeued(t *testing.T) {
	for _, tc := range spoiledRows {
		c := &clock{noon}
		s := outboxtest.NewSpoiled(t, c.option)
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", 3)...)
		spoil(t, db, tc.script)
		if count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE event_row_id = 2 AND state = 'pending'`) == 0 {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			h := s.AllTenants()
			for _, move := range []func() ([]outbox.RowResult, error){
				func() ([]outbox.RowResult, error) { return h.QuarantinePending(t.Context(), []int64{2}, "spoiled") },
				func() ([]outbox.RowResult, error) { return h.Requeue(t.Context(), []int64{2}) },
			} {
				if r, err := move(); err != nil || len(r) != 1 || r[0].Err != nil {
					t.Fatalf("%+v, %v", r, err)
				}
			}
		})
	}
}

func TestCheckIsBoundedAndByTenant(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 20)...)
	outboxtest.Enqueue(t, db, events("zeta", 5)...)
	spoil(t, db, `UPDATE dovecote_deliveries SET attempts = -1`)
	for _, tc := range []struct {
		handle      *outbox.Handle
		limit, want int
	}{{s.AllTenants(), 7, 7}, {s.AllTenants(), 0, 26}, {tenant(t, s, "zeta"), 0, 6}} {
		findings, err := tc.handle.Check(t.Context(), tc.limit)
		if err != nil || len(findings) != tc.want {
			t.Errorf("limit %d: %d findings, want %d (%v)", tc.limit, len(findings), tc.want, err)
		}
	}
	for _, limit := range []int{-1, 10_001} {
		if _, err := s.AllTenants().Check(t.Context(), limit); !errors.As(err, new(*outbox.InvalidLimitError)) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

func tenant(tb testing.TB, s *outbox.Store, name string) *outbox.Handle {
	tb.Helper()
	h, err := s.Tenant(name)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestCheckReadsMoreThanOneChunk(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	rows := outboxtest.Enqueue(t, db, events("acme", 2500)...)
	if findings, err := s.AllTenants().Check(t.Context(), 0); err != nil || len(findings) != 0 {
		t.Fatalf("%+v, %v", findings, err)
	}
	last := rows[len(rows)-1]
	spoil(t, db, fmt.Sprintf(`UPDATE dovecote_events SET extensions = '[]' WHERE row_id = %d`, last))
	findings, err := s.AllTenants().Check(t.Context(), 0)
	if err != nil || len(findings) != 1 || findings[0].Row != last || !strings.HasPrefix(findings[0].Detail, "extensions ") {
		t.Errorf("%+v, %v", findings, err)
	}
}
