package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// hotQueries are the statements that a relay repeats while the writer slot is
// held or before it goes to sleep, and those of an enqueue. The ones over sets are apart.
func hotQueries(ix *indexes) map[string]string {
	return map[string]string{
		"pending":               ix.pendingDue(""),
		"pending, tenant":       ix.pendingDue("acme"),
		"expired":               ix.expired(""),
		"expired, tenant":       ix.expired("acme"),
		"due":                   ix.due(""),
		"due, tenant":           ix.due("acme"),
		"load one":              loadOneSQL,
		"lease":                 leaseSQL,
		"ack":                   ackSQL.all,
		"ack, tenant":           ackSQL.one,
		"retry":                 retrySQL.all,
		"retry, tenant":         retrySQL.one,
		"release":               releaseSQL.all,
		"renew":                 renewSQL.all,
		"quarantine":            quarantineSQL.all,
		"set aside":             setAsideSQL.all,
		"why nothing changed":   classifySQL.all,
		"remove old deliveries": fmt.Sprintf(deleteDeliverySQL, ""),
		"remove their events":   deleteEventSQL,
		"enqueue again":         existingSQL,
		"insert a delivery":     insertDeliverySQL,
	}
}

// planShapes are tables to which a planner might answer with other plans; each
// adds to the one before.
var planShapes = []struct {
	name  string
	state State
	rows  int
}{
	{"empty", Pending, 0},
	{"one row", Pending, 1},
	{"few pending", Pending, 5},
	{"few claimed", InClaim, 5},
	{"many delivered", Delivered, 500},
	{"many pending", Pending, 500},
	{"many claimed", InClaim, 500},
	{"many quarantined", Quarantined, 500},
}

// Each plan is looked at in every shape of the tables, with no statistics, with
// fresh ones, and with those of each earlier shape: statistics are made when
// somebody says ANALYZE, and the table grows on.
func TestPlansStayBounded(t *testing.T) {
	for _, indexing := range []string{"ours", "none of ours"} {
		for analyzed := -1; analyzed < len(planShapes); analyzed++ {
			t.Run(fmt.Sprintf("%s, analyzed %d", indexing, analyzed), func(t *testing.T) {
				s := open(t, Options{})
				if indexing != "ours" {
					foreignIndexes(t, s)
				}
				for i, shape := range planShapes {
					addRows(t, s, shape.state, shape.rows)
					if i == analyzed {
						execWriter(t, s, `ANALYZE`)
					}
					checkPlans(t, s, shape.name)
				}
			})
		}
	}
}

// falseStatistics make indexes and tables look better or worse than they are.
var falseStatistics = map[string]string{
	"an index finds one row":      "10000000 1 1 1 1",
	"an index finds every row":    "10000000 10000000 10000000 10000000 10000000",
	"the tables are empty":        "0 0 0 0 0",
	"the tables have one row":     "1 1 1 1 1",
	"a row is as large as a disk": "1000 10 10 10 10 sz=1000000000",
}

func TestPlansStayBoundedWithFalseStatistics(t *testing.T) {
	for _, indexing := range []string{"ours", "none of ours"} {
		for name, stat := range falseStatistics {
			t.Run(indexing+", "+name, func(t *testing.T) {
				s := open(t, Options{})
				if indexing != "ours" {
					foreignIndexes(t, s)
				}
				addRows(t, s, Delivered, 50)
				addRows(t, s, Pending, 5)
				execWriter(t, s, `ANALYZE`)
				execWriter(t, s, `UPDATE sqlite_stat1 SET stat = ?`, stat)
				s.Close()
				checkPlans(t, reopen(t, s.path, Options{}), name) // a new connection reads them
			})
		}
	}
}

func execWriter(tb testing.TB, s *Store, query string, args ...any) {
	tb.Helper()
	_, err := s.write(context.Background(), "test", func(ctx context.Context, t *txn) error {
		_, err := t.conn.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// foreignIndexes replaces our indexes by those of the library whose schema this is.
func foreignIndexes(tb testing.TB, s *Store) {
	for _, name := range []string{"due", "tenant_due", "expiry", "quarantined"} {
		execWriter(tb, s, `DROP INDEX IF EXISTS dovecote_deliveries_`+name)
	}
	execWriter(tb, s, `CREATE INDEX a ON dovecote_deliveries (tenant_id, state, available_at, event_row_id)`)
	execWriter(tb, s, `CREATE INDEX b ON dovecote_deliveries (tenant_id, state, claim_expires_at, event_row_id)`)
}

func addRows(tb testing.TB, s *Store, state State, n int) {
	const at = `'2026-01-01T00:00:00.000000Z'`
	columns := map[State]string{
		Pending: `NULL, NULL, NULL, NULL, NULL, NULL`, InClaim: `randomblob(16), 'w', ` + at + `, NULL, NULL, NULL`,
		Delivered: `NULL, NULL, NULL, ` + at + `, NULL, NULL`, Quarantined: `NULL, NULL, NULL, NULL, ` + at + `, 'r'`,
	}[state]
	const count = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n WHERE ? > 0`
	execWriter(tb, s, `INSERT INTO dovecote_events (tenant_id, stream, specversion, event_id, source, event_type)
		SELECT 'acme', 's', '1.0', hex(randomblob(16)), '/s', 't' FROM (`+count+`)`, n, n)
	execWriter(tb, s, `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, available_at,
			claim_token, claimed_by, claim_expires_at, delivered_at, quarantined_at, quarantine_reason)
		SELECT row_id, 'acme', ?, `+at+`, `+columns+` FROM dovecote_events
		WHERE row_id > coalesce((SELECT max(event_row_id) FROM dovecote_deliveries), 0)`, string(state))
}

func checkPlans(t *testing.T, s *Store, shape string) {
	t.Helper()
	_, err := s.write(context.Background(), "test", func(ctx context.Context, x *txn) error {
		ix, err := s.indexes(ctx, x)
		if err != nil {
			return err
		}
		for name, query := range hotQueries(ix) {
			steps, err := x.plan(ctx, query)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, step := range steps {
				if unbounded(step, name) {
					t.Errorf("%s: %s:\n%s", shape, name, strings.Join(steps, "\n"))
				}
			}
		}
		return checkSets(ctx, t, x, shape)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// unbounded reports a step whose cost grows with the table.
func unbounded(step, query string) bool {
	switch {
	case strings.Contains(step, "TEMP B-TREE"):
		return true
	case query == "load one" && !strings.Contains(step, "dovecote_"):
		return false // of the one row that each part has found
	case strings.HasPrefix(step, "SCAN j"), strings.HasPrefix(step, "SCAN json_each"), strings.HasPrefix(step, "SCAN CONSTANT ROW"),
		strings.HasPrefix(step, "SCAN (subquery"):
		return false
	case strings.HasPrefix(step, "SCAN"):
		// An index that is read in its order is left at the limit.
		return !strings.Contains(step, "USING")
	}
	return false
}

// checkSets compares what is said of the statements over sets with their plans,
// and sees to it that they are used wherever the statistics are none or new.
func checkSets(ctx context.Context, t *testing.T, x *txn, shape string) error {
	for _, query := range []string{ackSetSQL.all, ackSetSQL.one, leaseSetSQL, leaseAheadSQL, loadSQL} {
		whole, err := x.wholeSets(ctx, query)
		if err != nil {
			return err
		}
		steps, err := x.plan(ctx, query)
		if err != nil {
			return err
		}
		scans := false
		for _, step := range steps {
			scans = scans || strings.HasPrefix(step, "SCAN d") || strings.HasPrefix(step, "SCAN e")
		}
		if whole == scans {
			t.Errorf("%s: one statement for all rows: %v, but its plan is\n%s", shape, whole, strings.Join(steps, "\n"))
		}
		var statistics sql.NullString
		_ = x.conn.QueryRowContext(ctx, `SELECT group_concat(stat) FROM sqlite_stat1 WHERE tbl = 'dovecote_deliveries'`).Scan(&statistics)
		if !whole && !statistics.Valid {
			t.Errorf("%s: without statistics the rows are written one by one:\n%s", shape, strings.Join(steps, "\n"))
		}
	}
	return nil
}
