package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

var delivered = time.Date(2025, 6, 7, 8, 9, 10, 123456000, time.UTC)

// importing imports one event in a transaction of its own.
func importing(tb testing.TB, db *sql.DB, e outbox.Event, at time.Time) (outcome outbox.ImportOutcome, row int64, err error) {
	tb.Helper()
	inTx(tb, db, func(tx *sql.Tx) {
		outcome, row, err = outbox.Import(tb.Context(), tx, outbox.ImportEvent{Event: e, DeliveredAt: at})
	})
	return outcome, row, err
}

func TestImportOutcomes(t *testing.T) {
	changed := full()
	changed.Data = outbox.JSON([]byte(`{"id":2}`))
	claimed := `UPDATE dovecote_deliveries SET state = 'claimed', attempts = 1, claim_token = zeroblob(16), claimed_by = 'w', claim_expires_at = '2030-01-01T00:00:00.000000Z'`
	for _, tc := range []struct {
		name          string
		first, second time.Time // delivered at
		between       string    // SQL between the two
		event         outbox.Event
		conflict      any // what errors.As finds; nil: AlreadyImported
		state         outbox.State
	}{
		{name: "pending again", event: full()},
		{name: "delivered again", first: delivered, second: delivered, event: full()},
		{name: "delivered again in another zone", first: delivered, second: delivered.In(time.FixedZone("x", 7200)), event: full()},
		{name: "delivered again, stored without zeros", first: delivered, second: stamp("2025-06-07T08:09:10.5Z"), event: full(),
			between: `UPDATE dovecote_deliveries SET delivered_at = '2025-06-07T08:09:10.5Z'`},
		{name: "pending with other content", event: changed, conflict: new(*outbox.IdentityConflictError)},
		{name: "delivered with other content", first: delivered, second: delivered, event: changed, conflict: new(*outbox.IdentityConflictError)},
		{name: "pending, then delivered", second: delivered, event: full(), conflict: new(*outbox.ImportConflictError), state: outbox.Pending},
		{name: "delivered, then pending", first: delivered, event: full(), conflict: new(*outbox.ImportConflictError), state: outbox.Delivered},
		{name: "delivered at another time", first: delivered, second: delivered.Add(time.Microsecond), event: full(), conflict: new(*outbox.ImportConflictError), state: outbox.Delivered},
		{name: "claimed since", event: full(), between: claimed, conflict: new(*outbox.ImportConflictError), state: outbox.InClaim},
		{name: "tried since", event: full(), between: `UPDATE dovecote_deliveries SET attempts = 1`, conflict: new(*outbox.ImportConflictError), state: outbox.Pending},
		{name: "failed since", event: full(), between: `UPDATE dovecote_deliveries SET last_failure_code = 'c', last_failure_detail = 'd'`, conflict: new(*outbox.ImportConflictError), state: outbox.Pending},
		{name: "put off since", event: full(), between: `UPDATE dovecote_deliveries SET available_at = '2030-01-01T00:00:00.000000Z'`, conflict: new(*outbox.ImportConflictError), state: outbox.Pending},
		{name: "without its delivery", event: full(), between: `DELETE FROM dovecote_deliveries`, conflict: new(*outbox.MigrationMismatchError)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
				outcome, row, err := importing(t, db, full(), tc.first)
				if err != nil || outcome != outbox.Imported || row != 1 {
					t.Fatal(outcome, row, err)
				}
				if tc.between != "" {
					must(t, db, tc.between)
				}
				before := dump(t, db)
				outcome, row, err = importing(t, db, tc.event, tc.second)
				var conflict *outbox.ImportConflictError
				switch {
				case tc.conflict == nil && (err != nil || outcome != outbox.AlreadyImported || row != 1):
					t.Error(outcome, row, err)
				case tc.conflict != nil && (!errors.As(err, tc.conflict) || outcome != 0):
					t.Error(outcome, err)
				case errors.As(err, &conflict) && (conflict.State != tc.state || conflict.Row != 1):
					t.Errorf("%+v", conflict)
				}
				if dump(t, db) != before || count(t, db, `SELECT count(*) FROM dovecote_events`) != 1 {
					t.Error("something changed")
				}
			})
		})
	}
}

func TestImportWritesTheStateOfTheOlderOutbox(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		importing(t, db, event("acme", "pending"), time.Time{})
		importing(t, db, event("acme", "delivered"), delivered)
		if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries d JOIN dovecote_events e ON e.row_id = d.event_row_id AND e.tenant_id = d.tenant_id
			WHERE d.available_at = e.enqueued_at AND d.attempts = 0 AND (d.state = 'pending' AND e.event_id = 'pending' AND d.delivered_at IS NULL
			OR d.state = 'delivered' AND e.event_id = 'delivered' AND d.delivered_at = '2025-06-07T08:09:10.123456Z')`); n != 2 {
			t.Error(dump(t, db))
		}
	})
}

func TestImportValidatesBeforeItWrites(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		bad := full()
		bad.Type = ""
		for _, tc := range []struct {
			event outbox.Event
			at    time.Time
			field string
			rule  outbox.Rule
		}{
			{bad, time.Time{}, "type", outbox.RuleEmpty},
			{full(), time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC), "delivered_at", outbox.RuleRange},
			{full(), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "delivered_at", outbox.RuleRange},
			{full(), delivered.Add(1), "delivered_at", outbox.RuleFormat},
		} {
			_, _, err := importing(t, db, tc.event, tc.at)
			var invalid *outbox.InvalidEventError
			if !errors.As(err, &invalid) || invalid.Field != tc.field || invalid.Rule != tc.rule {
				t.Errorf("%v: %v", tc.at, err)
			}
		}
		if count(t, db, `SELECT count(*) FROM dovecote_events`) != 0 {
			t.Error("something was written")
		}
	})
}

func TestImportTakesWhatTheOlderOutboxTook(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		e := event("acme", "large")
		e.ContentType, e.Data = "application/octet-stream", outbox.Binary(make([]byte, 100_000))
		if outcome, _, err := importing(t, db, e, time.Time{}); err != nil || outcome != outbox.Imported {
			t.Error(outcome, err)
		}
	})
}

func TestFinalize(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before string
		tenant string
		row    int64
		at     time.Time
		want   error
		as     any
	}{
		{name: "canonical pending"},
		{name: "finalized already at that time", before: `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '2025-06-07T08:09:10.123456Z'`},
		{name: "delivered at another time", before: `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '2025-06-07T08:09:10.123457Z'`, as: new(*outbox.StateConflictError)},
		{name: "delivered by a worker", before: `UPDATE dovecote_deliveries SET state = 'delivered', attempts = 1, delivered_at = '2025-06-07T08:09:10.123456Z'`, as: new(*outbox.StateConflictError)},
		{name: "tried", before: `UPDATE dovecote_deliveries SET attempts = 1`, as: new(*outbox.StateConflictError)},
		{name: "failed", before: `UPDATE dovecote_deliveries SET last_failure_code = 'c', last_failure_detail = 'd'`, as: new(*outbox.StateConflictError)},
		{name: "put off", before: `UPDATE dovecote_deliveries SET available_at = '2030-01-01T00:00:00.000000Z'`, as: new(*outbox.StateConflictError)},
		{name: "claimed", before: `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = zeroblob(16), claimed_by = 'w', claim_expires_at = '2030-01-01T00:00:00.000000Z'`, as: new(*outbox.StateConflictError)},
		{name: "quarantined", before: `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = available_at, quarantine_reason = 'r'`, as: new(*outbox.StateConflictError)},
		{name: "without its delivery", before: `DELETE FROM dovecote_deliveries`, as: new(*outbox.MigrationMismatchError)},
		{name: "no such row", row: 9, want: outbox.ErrNotFound},
		{name: "another tenant", tenant: "zeta", want: outbox.ErrNotFound},
		{name: "a tenant that is none", tenant: "a\nb", as: new(*outbox.InvalidEventError)},
		{name: "a time that is none", at: delivered.Add(1), as: new(*outbox.InvalidEventError)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
				if _, _, err := importing(t, db, full(), time.Time{}); err != nil {
					t.Fatal(err)
				}
				if tc.before != "" {
					must(t, db, tc.before)
				}
				row, at, name := max(tc.row, 1), delivered, "acme"
				if tc.tenant != "" {
					name = tc.tenant
				}
				if !tc.at.IsZero() {
					at = tc.at
				}
				before := dump(t, db)
				var err error
				inTx(t, db, func(tx *sql.Tx) { err = outbox.Finalize(t.Context(), tx, name, row, at) })
				switch {
				case tc.want == nil && tc.as == nil:
					if got := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE state = 'delivered' AND delivered_at = '2025-06-07T08:09:10.123456Z'`); err != nil || got != 1 {
						t.Error(err, dump(t, db))
					}
					return
				case tc.want != nil && !errors.Is(err, tc.want), tc.as != nil && !errors.As(err, tc.as):
					t.Error(err)
				}
				if dump(t, db) != before {
					t.Error("something changed")
				}
			})
		})
	}
	if err := outbox.Finalize(t.Context(), nil, "acme", 1, time.Time{}); !errors.As(err, new(*outbox.InvalidEventError)) {
		t.Error(err)
	}
}

// Import in the caller's transaction is undone with it.
func TestImportIsTheCallersToCommit(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		tx, err := outbox.Begin(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, _, err := outbox.Import(t.Context(), tx, outbox.ImportEvent{Event: event("acme", fmt.Sprint(i))}); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if count(t, db, `SELECT count(*) FROM dovecote_events`) != 0 {
			t.Error("something stayed")
		}
	})
}

// Each step fails once. A caller that rolls back has nothing, one that commits all
// the same has no event without its delivery, and trying again goes through.
func TestEachStepOfAnImportFailsOnce(t *testing.T) {
	imports := func(tx *sql.Tx) error {
		for _, e := range []outbox.ImportEvent{{Event: event("acme", "1")}, {Event: event("acme", "2"), DeliveredAt: delivered}, {Event: event("acme", "1")}} {
			if _, _, err := outbox.Import(context.Background(), tx, e); err != nil {
				return err
			}
		}
		return outbox.Finalize(context.Background(), tx, "acme", 1, delivered)
	}
	for _, commit := range []bool{false, true} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			for n := 1; ; n++ {
				path, faults := outboxtest.NewFile(t), new(outboxtest.Faults)
				db, tx := faultyProducer(t, path, faults)
				defer db.Close()
				faults.FailAt(n, outboxtest.IOError)
				failed := imports(tx)
				log := strings.Split(faults.Log(), "\n")
				taken := faults.Disarm()
				if failed != nil && outbox.FaultOf(failed) != outbox.FaultIO {
					t.Fatalf("step %q: the driver's code is lost: %v", log[n-1], failed)
				}
				end := tx.Rollback
				if commit {
					end = tx.Commit
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
				if got := count(t, db, `SELECT count(*) FROM dovecote_events WHERE row_id NOT IN (SELECT event_row_id FROM dovecote_deliveries)`); got != 0 {
					t.Fatalf("step %q: %d events without delivery", log[n-1], got)
				}
				if !commit && count(t, db, `SELECT count(*) FROM dovecote_events`) != 0 {
					t.Fatal("a rolled back import left something")
				}
				if taken < n {
					if failed != nil {
						t.Fatal(failed)
					}
					t.Logf("%d steps", taken)
					return
				}
				if !commit {
					inTx(t, db, func(tx *sql.Tx) {
						if err := imports(tx); err != nil {
							t.Fatalf("step %q, then: %v", log[n-1], err)
						}
					})
				}
			}
		})
	}
}
