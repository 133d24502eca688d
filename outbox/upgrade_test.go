package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func readFile(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// scriptFile makes a database by SQL and returns its path.
func scriptFile(tb testing.TB, scripts ...string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, script := range scripts {
		must(tb, db, script)
	}
	return path
}

// versionOneRows are rows in every state, an event without delivery, every
// nullable column with and without a value, and a row id that was given out and
// taken back.
const versionOneRows = `
INSERT INTO dovecote_events (row_id, stream, specversion, event_id, source, event_type, subject, occurred_at, datacontenttype, dataschema, partitionkey, extensions, data_kind, data, enqueued_at) VALUES
	(1, 'orders', '1.0', 'a', '/o', 't', NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, '2026-01-01T00:00:00.001000Z'),
	(2, 'orders', '1.0', 'b', '/o', 't', 'sub', '2026-01-01T00:00:00.5Z', 'application/json', 'https://example.com/s', 'key', '{"a":{"type":"boolean","value":true}}', 'json', x'7b7d', '2026-01-01T00:00:00.002000Z'),
	(4, 'bills', '1.0', 'c', '/o', 't', NULL, NULL, 'application/octet-stream', NULL, NULL, '{}', 'binary', x'00ff', '2026-01-01T00:00:00.003000Z'),
	(7, 'bills', '1.0', 'd', '/o', 't', NULL, NULL, NULL, NULL, NULL, '{}', 'binary', x'', '2026-01-01T00:00:00.004000Z'),
	(9, 'bills', '1.0', 'orphan', '/o', 't', NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, '2026-01-01T00:00:00.005000Z'),
	(20, 'bills', '1.0', 'gone', '/o', 't', NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, '2026-01-01T00:00:00.005000Z');
DELETE FROM dovecote_events WHERE row_id = 20;
INSERT INTO dovecote_deliveries VALUES
	(1, 'pending', '2026-01-02T00:00:00.000000Z', 3, NULL, NULL, NULL, 'timeout', 'no answer', NULL, NULL, NULL),
	(2, 'claimed', '2026-01-01T00:00:00.000000Z', 1, x'000102030405060708090a0b0c0d0e0f', 'worker', '2026-01-01T00:00:30.000000Z', NULL, NULL, NULL, NULL, NULL),
	(4, 'delivered', '2026-01-01T00:00:00.000000Z', 1, NULL, NULL, NULL, NULL, NULL, '2026-01-01T00:00:10.5Z', NULL, NULL),
	(7, 'quarantined', '2026-01-01T00:00:00.000000Z', 20, NULL, NULL, NULL, 'timeout', 'no answer', NULL, '2026-01-03T00:00:00.000000Z', 'poison');`

const versionOneEventsSQL = `SELECT json_array(row_id, stream, specversion, event_id, source, event_type, subject, occurred_at, datacontenttype, dataschema,
	partitionkey, extensions, data_kind, hex(data), typeof(data), enqueued_at) FROM dovecote_events ORDER BY row_id`

func column(tb testing.TB, db *sql.DB, query string) []string {
	tb.Helper()
	rows, err := db.Query(query)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			tb.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func openRaw(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=rw")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func versionOneFile(tb testing.TB, more ...string) string {
	tb.Helper()
	return scriptFile(tb, append([]string{readFile(tb, "testdata/foreign_v1.sql"), versionOneRows}, more...)...)
}

func TestUpgradeKeepsEveryRow(t *testing.T) {
	path := versionOneFile(t)
	raw := openRaw(t, path)
	events, deliveries := column(t, raw, versionOneEventsSQL), dump(t, raw)

	var mismatch *outbox.MigrationMismatchError
	_, err := outbox.Open(t.Context(), path, outbox.Options{})
	if !errors.As(err, &mismatch) || mismatch.Version != 1 || !strings.Contains(err.Error(), "`relay migrate --tenant NAME`") {
		t.Fatalf("open: %v", err)
	}
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{}); !errors.As(err, &mismatch) {
		t.Fatalf("migrate without a tenant: %v", err)
	}
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "a\nb"}); !errors.As(err, new(*outbox.InvalidEventError)) {
		t.Fatalf("migrate to a tenant that is none: %v", err)
	}
	dry, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme", DryRun: true})
	if err != nil || dry.From != 1 || dry.To != 2 || len(dry.Steps) != 5 {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if !slices.Equal(column(t, raw, versionOneEventsSQL), events) || len(column(t, raw, `SELECT name FROM sqlite_schema WHERE name = 'dovecote_schema'`)) != 0 {
		t.Fatal("the dry run changed something")
	}
	m, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme"})
	if err != nil || m.From != 1 || m.To != 2 || !slices.Equal(m.Steps, dry.Steps) {
		t.Fatalf("%+v, %v", m, err)
	}
	if got := column(t, raw, versionOneEventsSQL); !slices.Equal(got, events) {
		t.Errorf("events\n%s\nwere\n%s", strings.Join(got, "\n"), strings.Join(events, "\n"))
	}
	if got := dump(t, raw); got != deliveries {
		t.Errorf("deliveries\n%s\nwere\n%s", got, deliveries)
	}
	if got := column(t, raw, `SELECT DISTINCT tenant_id FROM dovecote_events UNION ALL SELECT DISTINCT tenant_id FROM dovecote_deliveries`); !slices.Equal(got, []string{"acme", "acme"}) {
		t.Errorf("tenants %q", got)
	}
	if got := column(t, raw, `SELECT name FROM sqlite_schema WHERE name LIKE '%v1' OR name IN ('dovecote_events_source_event_id', 'dovecote_deliveries_claimable')`); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
	if again, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "other", AddIndexes: true}); err != nil || len(again.Steps) != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}

	s, err := outbox.Open(t.Context(), path, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	findings, err := s.AllTenants().Check(t.Context(), 0)
	if err != nil || len(findings) != 1 || findings[0].Rule != outbox.CheckOrphan || findings[0].Row != 9 {
		t.Errorf("%+v, %v", findings, err)
	}
	if rows := outboxtest.Enqueue(t, outboxtest.Producer(t, path), event("acme", "new")); rows[0] != 21 {
		t.Errorf("the next row id is %d, although 20 was given out", rows[0])
	}
}

func TestUpgradeOfAFileWithoutRows(t *testing.T) {
	for name, script := range map[string]string{
		"never used": "",
		"emptied":    versionOneRows + `DELETE FROM dovecote_deliveries; DELETE FROM dovecote_events;`,
	} {
		t.Run(name, func(t *testing.T) {
			path := scriptFile(t, readFile(t, "testdata/foreign_v1.sql"), script)
			if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme"}); err != nil {
				t.Fatal(err)
			}
			outboxtest.OpenStore(t, path)
			want := int64(1)
			if script != "" {
				want = 21
			}
			if rows := outboxtest.Enqueue(t, outboxtest.Producer(t, path), event("acme", "new")); rows[0] != want {
				t.Errorf("the next row id is %d, want %d", rows[0], want)
			}
		})
	}
}

const prepareVersionOne = `ALTER TABLE dovecote_events ADD COLUMN tenant_id TEXT; ALTER TABLE dovecote_deliveries ADD COLUMN tenant_id TEXT;`

// Another library's upgrade may have been begun: rows that it gave a tenant keep
// it.
func TestUpgradeOfAPreparedFile(t *testing.T) {
	path := versionOneFile(t, prepareVersionOne, `
		UPDATE dovecote_events SET tenant_id = 'zeta' WHERE row_id IN (2, 4); UPDATE dovecote_deliveries SET tenant_id = 'zeta' WHERE event_row_id = 4`)
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	raw := openRaw(t, path)
	for query, want := range map[string]string{
		`SELECT row_id || tenant_id FROM dovecote_events ORDER BY row_id`:                 "1acme 2zeta 4zeta 7acme 9acme",
		`SELECT event_row_id || tenant_id FROM dovecote_deliveries ORDER BY event_row_id`: "1acme 2zeta 4zeta 7acme",
	} {
		if got := strings.Join(column(t, raw, query), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	s, err := outbox.Open(t.Context(), path, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// What the upgrade would lose, or cannot take along, is named, and nothing
// changes.
func TestUpgradeRefuses(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"a delivery without event", `INSERT INTO dovecote_deliveries (event_row_id, state) VALUES (77, 'pending')`, "dovecote_deliveries row 77 has no event"},
		{"an app's column", `ALTER TABLE dovecote_events ADD COLUMN note TEXT`, "column dovecote_events.note does not belong to version 1"},
		{"an app's index", `CREATE INDEX by_stream ON dovecote_events (stream)`, "index by_stream does not belong to version 1"},
		{"an app's trigger", `CREATE TRIGGER seen AFTER INSERT ON dovecote_events BEGIN SELECT 1; END`, "trigger seen does not belong to version 1"},
		{"two tenants for a row", prepareVersionOne + `UPDATE dovecote_events SET tenant_id = 'a'; UPDATE dovecote_deliveries SET tenant_id = 'b' WHERE event_row_id = 4`, "row 4 has another tenant in dovecote_deliveries"},
		{"a tenant that is none", prepareVersionOne + `UPDATE dovecote_events SET tenant_id = ''`, `tenant "": `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := versionOneFile(t, tc.script)
			before := dump(t, openRaw(t, path))
			for _, dry := range []bool{true, false} {
				_, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme", DryRun: dry})
				var mismatch *outbox.MigrationMismatchError
				if !errors.As(err, &mismatch) || mismatch.Version != 1 || len(mismatch.Problems) != 1 || !strings.HasPrefix(mismatch.Problems[0], tc.want) {
					t.Errorf("dry run %t: %v", dry, err)
				}
			}
			if dump(t, openRaw(t, path)) != before {
				t.Error("something changed")
			}
		})
	}
}

// A row that breaks the constraints stops the upgrade in the middle of it, and takes
// it back.
func TestUpgradeThatFailsIsTakenBack(t *testing.T) {
	path := versionOneFile(t, `PRAGMA ignore_check_constraints = ON; UPDATE dovecote_deliveries SET attempts = -1 WHERE event_row_id = 4`)
	raw := openRaw(t, path)
	before := column(t, raw, `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL`)
	_, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme"})
	if err == nil || !strings.Contains(err.Error(), "copy deliveries") {
		t.Fatal(err)
	}
	if got := column(t, raw, `SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL`); !slices.Equal(got, before) {
		t.Errorf("the schema is\n%s", strings.Join(got, "\n"))
	}
}

// An app's own view and foreign key go on with the new tables.
func TestUpgradeKeepsWhatAnAppRefersFrom(t *testing.T) {
	path := versionOneFile(t, `
		CREATE VIEW waiting AS SELECT event_row_id FROM dovecote_deliveries WHERE state = 'pending';
		CREATE TABLE receipts (event INTEGER REFERENCES dovecote_events (row_id));
		INSERT INTO receipts VALUES (4)`)
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	db := outboxtest.Producer(t, path)
	if count(t, db, `SELECT count(*) FROM waiting`) != 1 || count(t, db, `SELECT count(*) FROM pragma_foreign_key_check`) != 0 {
		t.Error("a view or a reference is broken")
	}
	if _, err := db.Exec(`INSERT INTO receipts VALUES (99)`); err == nil {
		t.Error("the app's foreign key is no longer enforced")
	}
}

// copyFiles copies a database as a crash leaves it: file and log, at one moment.
func copyFiles(tb testing.TB, from string) string {
	tb.Helper()
	to := filepath.Join(tb.TempDir(), "outbox.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, b, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return to
}

// Killed before any of its statements, or failing at one, the upgrade leaves
// version 1 as it was; and it can be made then.
func TestUpgradeInterruptedAtEachStep(t *testing.T) {
	for n := 1; ; n++ {
		path := versionOneFile(t)
		raw := openRaw(t, path)
		events, deliveries := column(t, raw, versionOneEventsSQL), dump(t, raw)
		faults, steps := new(outboxtest.Faults), 0
		var killed string
		faults.Before(func(string, func(string) error) {
			if steps++; steps == n {
				killed = copyFiles(t, path)
			}
		})
		faults.FailAt(n, outboxtest.IOError)
		_, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Tenant: "acme", Driver: faults.Connector})
		log := strings.Split(faults.Log(), "\n")
		reached := faults.Disarm() >= n
		if !reached && err != nil {
			t.Fatal(err)
		}
		if reached && err == nil && !strings.Contains(log[n-1], "next") {
			t.Fatalf("step %q failed, and the upgrade did not", log[n-1])
		}
		for name, path := range map[string]string{"failed": path, "killed": killed} {
			if path == "" || name == "failed" && err == nil {
				continue
			}
			raw := openRaw(t, path)
			if !slices.Equal(column(t, raw, versionOneEventsSQL), events) || dump(t, raw) != deliveries {
				t.Fatalf("step %d, %s: rows changed", n, name)
			}
			if len(column(t, raw, `SELECT name FROM sqlite_schema WHERE name LIKE 'dovecote_%_v1' OR name = 'dovecote_schema'`)) != 0 {
				t.Fatalf("step %d, %s: half an upgrade", n, name)
			}
			if _, err := outbox.Migrate(context.Background(), path, outbox.MigrateOptions{Tenant: "acme"}); err != nil {
				t.Fatalf("step %d, %s, then: %v", n, name, err)
			}
			if dump(t, raw) != deliveries {
				t.Fatalf("step %d, %s, then: rows changed", n, name)
			}
		}
		if !reached && steps < n {
			t.Logf("%d steps", n-1)
			return
		}
		if testing.Short() && n > 10 {
			n += 6
		}
	}
}

func TestAddIndexesToAFileOfTheOtherLibrary(t *testing.T) {
	path := scriptFile(t, readFile(t, "testdata/foreign_v2.sql"))
	if m, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{}); err != nil || len(m.Steps) != 0 {
		t.Errorf("without being asked: %+v, %v", m, err)
	}
	for _, o := range []outbox.MigrateOptions{{AddIndexes: true, DryRun: true}, {AddIndexes: true}} {
		if m, err := outbox.Migrate(t.Context(), path, o); err != nil || len(m.Steps) != 1 {
			t.Errorf("%+v: %+v, %v", o, m, err)
		}
	}
	if m, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{AddIndexes: true}); err != nil || len(m.Steps) != 0 {
		t.Errorf("again: %+v, %v", m, err)
	}
	if n := count(t, openRaw(t, path), `SELECT count(*) FROM pragma_index_list('dovecote_deliveries') WHERE partial`); n != 4 {
		t.Errorf("%d indexes", n)
	}
}

// Where no index serves claims, opening says how to add them, and that works.
func TestAddIndexesWhereNoneServesClaims(t *testing.T) {
	path := scriptFile(t, readFile(t, "testdata/foreign_v2.sql"), `DROP INDEX dovecote_deliveries_claimable`)
	_, err := outbox.Open(t.Context(), path, outbox.Options{})
	if err == nil || !strings.Contains(err.Error(), "`relay migrate --add-indexes`") {
		t.Fatal(err)
	}
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{AddIndexes: true}); err != nil {
		t.Fatal(err)
	}
	outboxtest.OpenStore(t, path)
}

func TestMigrateRefusesASchemaThatIsNone(t *testing.T) {
	path := scriptFile(t, strings.ReplaceAll(readFile(t, "testdata/foreign_v2.sql"), " AUTOINCREMENT", ""))
	for _, o := range []outbox.MigrateOptions{{}, {AddIndexes: true}, {Tenant: "acme"}, {Create: true}} {
		if _, err := outbox.Migrate(t.Context(), path, o); !errors.As(err, new(*outbox.MigrationMismatchError)) || !strings.Contains(fmt.Sprint(err), "AUTOINCREMENT") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
