package outbox

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readFixture returns testdata/name with each old text replaced by the new one
// that follows it.
func readFixture(tb testing.TB, name string, oldNew ...string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	s := string(b)
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(s, oldNew[i]) {
			tb.Fatalf("%s has no %q", name, oldNew[i])
		}
		s = strings.ReplaceAll(s, oldNew[i], oldNew[i+1])
	}
	return s
}

// rawDB makes a database file with the given SQL, with foreign keys on and
// nothing else of the library.
func rawDB(tb testing.TB, script string) (*sql.DB, string) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=foreign_keys(1)&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	if _, err := db.Exec(script); err != nil {
		tb.Fatal(err)
	}
	return db, path
}

func schemaProblems(tb testing.TB, script string) []string {
	tb.Helper()
	db, path := rawDB(tb, script)
	err := checkSchema(tb.Context(), db, path)
	var mismatch *MigrationMismatchError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &mismatch):
		tb.Fatal(err)
	case mismatch.Remedy == "":
		tb.Errorf("no remedy: %v", err)
	}
	return mismatch.Problems
}

func TestSchemaOfOtherLibraryPasses(t *testing.T) {
	extra := `
		CREATE INDEX dovecote_deliveries_due ON dovecote_deliveries (available_at, event_row_id) WHERE state = 'pending';
		CREATE INDEX dovecote_deliveries_tenant_due ON dovecote_deliveries (tenant_id, available_at, event_row_id) WHERE state = 'pending';
		CREATE INDEX dovecote_deliveries_expiry ON dovecote_deliveries (claim_expires_at, event_row_id) WHERE state = 'claimed';`
	app := `
		CREATE TABLE orders (id INTEGER PRIMARY KEY, body TEXT);
		ALTER TABLE dovecote_events ADD COLUMN note TEXT;
		CREATE INDEX app_stream ON dovecote_events (stream);
		CREATE TRIGGER app_seen AFTER INSERT ON dovecote_events BEGIN INSERT INTO orders (body) VALUES (new.stream); END;`
	ownIndexesOnly := readFixture(t, "foreign_v2.sql",
		"CREATE INDEX dovecote_deliveries_claimable ON dovecote_deliveries (tenant_id, state, available_at, event_row_id);", "",
		"CREATE INDEX dovecote_deliveries_expired_claims ON dovecote_deliveries (tenant_id, state, claim_expires_at, event_row_id);", "") + extra
	for _, tc := range []struct{ name, script string }{
		{"as installed", readFixture(t, "foreign_v2.sql")},
		{"with the relay's indexes beside its own", readFixture(t, "foreign_v2.sql") + extra},
		{"with the relay's indexes only", ownIndexesOnly},
		{"with what an app added", readFixture(t, "foreign_v2.sql") + app},
		{"with strict tables", readFixture(t, "foreign_v2.sql", "datacontenttype IS NOT NULL)\n);", "datacontenttype IS NOT NULL)\n) STRICT;")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if p := schemaProblems(t, tc.script); p != nil {
				t.Errorf("problems: %s", strings.Join(p, "\n"))
			}
		})
	}
}

// Each case takes one thing away from a schema that is in order. want are the
// problems that must be named; others are a failure.
func TestSchemaNamesEachDifference(t *testing.T) {
	cut := func(name, old string, want ...string) schemaCase { return schemaCase{name, []string{old, ""}, want} }
	swap := func(name, old, new string, want ...string) schemaCase {
		return schemaCase{name, []string{old, new}, want}
	}
	cases := []schemaCase{
		cut("no row_id > 0", "    CHECK (row_id > 0),\n", "dovecote_events: CHECK (row_id > 0) is missing"),
		cut("any specversion", "    CHECK (specversion = '1.0'),\n", "dovecote_events: CHECK (specversion = '1.0') is missing"),
		cut("empty tenant of an event", "    CHECK (length(CAST(tenant_id AS BLOB)) > 0),\n", "dovecote_events: CHECK (tenant_id is not empty) is missing"),
		cut("long tenant of an event", "    CHECK (length(CAST(tenant_id AS BLOB)) <= 255),\n", "dovecote_events: CHECK (tenant_id has at most 255 bytes) is missing"),
		swap("characters counted instead of bytes", "CHECK (length(CAST(stream AS BLOB)) <= 255)", "CHECK (length(stream) <= 255)",
			"dovecote_events: CHECK (stream has at most 255 bytes) is missing"),
		cut("long event_id", "    CHECK (length(CAST(event_id AS BLOB)) <= 1024),\n", "dovecote_events: CHECK (event_id has at most 1024 bytes) is missing"),
		cut("long source and event_id", "    CHECK (length(CAST(source AS BLOB)) + length(CAST(event_id AS BLOB)) <= 2048),\n",
			"dovecote_events: CHECK (source and event_id have at most 2048 bytes together) is missing"),
		swap("long source", "    CHECK (length(CAST(source AS BLOB)) <= 2048),\n    CHECK (length(CAST(source AS BLOB)) + length(CAST(event_id AS BLOB)) <= 2048),\n", "",
			"dovecote_events: CHECK (source has at most 2048 bytes) is missing",
			"dovecote_events: CHECK (source and event_id have at most 2048 bytes together) is missing"),
		cut("long event_type", "    CHECK (length(CAST(event_type AS BLOB)) <= 1024),\n", "dovecote_events: CHECK (event_type has at most 1024 bytes) is missing"),
		cut("long subject", "    CHECK (subject IS NULL OR length(CAST(subject AS BLOB)) <= 2048),\n", "dovecote_events: CHECK (subject has at most 2048 bytes) is missing"),
		cut("long datacontenttype", "    CHECK (datacontenttype IS NULL OR length(CAST(datacontenttype AS BLOB)) <= 255),\n",
			"dovecote_events: CHECK (datacontenttype has at most 255 bytes) is missing"),
		cut("long dataschema", "    CHECK (dataschema IS NULL OR length(CAST(dataschema AS BLOB)) <= 2048),\n", "dovecote_events: CHECK (dataschema has at most 2048 bytes) is missing"),
		cut("long partitionkey", "    CHECK (partitionkey IS NULL OR length(CAST(partitionkey AS BLOB)) <= 255),\n",
			"dovecote_events: CHECK (partitionkey has at most 255 bytes) is missing"),
		cut("any data_kind", "    CHECK (data_kind IS NULL OR data_kind IN ('json', 'binary')),\n", "dovecote_events: CHECK (data_kind is 'json' or 'binary') is missing"),
		cut("data without data_kind", "    CHECK ((data IS NULL) = (data_kind IS NULL)),\n",
			"dovecote_events: CHECK (data_kind is NULL when data is) is missing", "dovecote_events: CHECK (data is NULL when data_kind is) is missing"),
		swap("data without datacontenttype", "    CHECK ((data IS NULL) = (data_kind IS NULL)),\n    CHECK (length(data) = 0 OR data IS NULL OR datacontenttype IS NOT NULL)\n",
			"    CHECK ((data IS NULL) = (data_kind IS NULL))\n", "dovecote_events: CHECK (non-empty data needs datacontenttype) is missing"),
		swap("a tighter check", "CHECK (length(CAST(event_type AS BLOB)) <= 1024)", "CHECK (length(CAST(event_type AS BLOB)) <= 255)",
			"dovecote_events: an event with every text at its longest is refused: "),
		cut("ids that return", " AUTOINCREMENT", "dovecote_events.row_id: AUTOINCREMENT is missing"),
		swap("events without their own key", "row_id INTEGER PRIMARY KEY AUTOINCREMENT", "row_id INTEGER DEFAULT 7",
			"dovecote_events: the primary key is not row_id"),
		swap("nullable stream", "stream TEXT NOT NULL", "stream TEXT", "dovecote_events.stream: NOT NULL is missing"),
		swap("nullable event_id", "event_id TEXT NOT NULL", "event_id TEXT", "dovecote_events.event_id: NOT NULL is missing"),
		swap("numeric data", "data BLOB", "data DECIMAL", `dovecote_events.data: declared "DECIMAL", want type BLOB`),
		swap("numeric subject", "subject TEXT", "subject INTEGER", `dovecote_events.subject: declared "INTEGER", want type TEXT`),
		swap("another default of extensions", "DEFAULT '{}'", "DEFAULT '[]'", `dovecote_events.extensions: default is "[]", want {}`),
		swap("a default time in seconds", "enqueued_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))", "enqueued_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))",
			"dovecote_events.enqueued_at: default is "),
		swap("a constant default time", "enqueued_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))", "enqueued_at TEXT NOT NULL DEFAULT '2024-01-02T03:04:05.000000Z'",
			"dovecote_events.enqueued_at: default is "),
		swap("no default time of availability", "available_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))", "available_at TEXT NOT NULL",
			"dovecote_deliveries: a row that leaves available_at and attempts to their defaults is refused: "),
		swap("no occurred_at", "    occurred_at TEXT,\n", "", "dovecote_events.occurred_at: column is missing"),
		swap("an app column that producers must know", "data BLOB,", "data BLOB, region TEXT NOT NULL,", "dovecote_events: a valid event is refused: "),

		cut("no unique identity", "CREATE UNIQUE INDEX dovecote_events_tenant_source_event_id\n    ON dovecote_events (tenant_id COLLATE BINARY, source COLLATE BINARY, event_id COLLATE BINARY);\n",
			"dovecote_events: the unique identity (tenant_id, source, event_id) with BINARY collation is missing",
			"dovecote_events: the unique identity (tenant_id, source, event_id) is missing"),
		swap("identity without tenant", "(tenant_id COLLATE BINARY, source COLLATE BINARY, event_id COLLATE BINARY)", "(source, event_id)",
			"dovecote_events: the unique identity (tenant_id, source, event_id) with BINARY collation is missing",
			"dovecote_events: an identity that differs in tenant_id is refused: ",
			"dovecote_events: an identity that differs in the case of tenant_id is refused: "),
		swap("identity that ignores case", "event_id COLLATE BINARY)", "event_id COLLATE NOCASE)",
			"dovecote_events: the unique identity (tenant_id, source, event_id) with BINARY collation is missing",
			"dovecote_events: an identity that differs in the case of event_id is refused: "),
		swap("partial identity", "event_id COLLATE BINARY);", "event_id COLLATE BINARY) WHERE stream <> 'Stream';",
			"dovecote_events: the unique identity (tenant_id, source, event_id) with BINARY collation is missing",
			"dovecote_events: the unique identity (tenant_id, source, event_id) is missing"),
		swap("a tenant column that ignores case", "tenant_id TEXT NOT NULL,\n    stream", "tenant_id TEXT COLLATE NOCASE NOT NULL,\n    stream",
			"dovecote_events: UNIQUE (tenant_id, row_id) is missing", "dovecote_events.tenant_id: its collation is not BINARY"),
		swap("a state that ignores blanks at the end", "state TEXT NOT NULL", "state TEXT COLLATE RTRIM NOT NULL", "dovecote_deliveries: the indexes of claims are missing: ", "dovecote_deliveries.state: its collation is not BINARY"),
		swap("no key for the foreign key", "    UNIQUE (tenant_id, row_id),\n", "",
			"dovecote_events: UNIQUE (tenant_id, row_id) is missing", "dovecote_deliveries: a delivery of an event is refused: "),

		swap("no foreign key", "        ELSE 0 END),\n    FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT\n", "        ELSE 0 END)\n",
			"dovecote_deliveries: FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT is missing",
			"dovecote_deliveries: the foreign key to dovecote_events (tenant_id, row_id) is missing"),
		swap("a foreign key without tenant", "FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id)", "FOREIGN KEY (event_row_id) REFERENCES dovecote_events (row_id)",
			"dovecote_deliveries: FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT is missing",
			"dovecote_deliveries: the foreign key to dovecote_events (tenant_id, row_id) is missing"),
		swap("a foreign key that deletes", "ON DELETE RESTRICT", "ON DELETE CASCADE",
			"dovecote_deliveries: FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT is missing"),
		swap("many deliveries for an event", "event_row_id INTEGER PRIMARY KEY", "event_row_id INTEGER",
			"dovecote_deliveries: the primary key is not event_row_id"),
		cut("negative attempts", "    CHECK (attempts >= 0),\n", "dovecote_deliveries: CHECK (attempts >= 0) is missing"),
		swap("attempts without default", "attempts INTEGER NOT NULL DEFAULT 0", "attempts INTEGER NOT NULL",
			"dovecote_deliveries: a row that leaves available_at and attempts to their defaults is refused: "),
		cut("tokens of any length", "    CHECK (claim_token IS NULL OR length(claim_token) = 16),\n", "dovecote_deliveries: CHECK (claim_token has 16 bytes) is missing"),
		cut("long worker", "    CHECK (claimed_by IS NULL OR length(CAST(claimed_by AS BLOB)) <= 255),\n", "dovecote_deliveries: CHECK (claimed_by has at most 255 bytes) is missing"),
		cut("long failure code", "    CHECK (last_failure_code IS NULL OR length(CAST(last_failure_code AS BLOB)) <= 128),\n",
			"dovecote_deliveries: CHECK (last_failure_code has at most 128 bytes) is missing"),
		cut("long failure detail", "    CHECK (last_failure_detail IS NULL OR length(CAST(last_failure_detail AS BLOB)) <= 2048),\n",
			"dovecote_deliveries: CHECK (last_failure_detail has at most 2048 bytes) is missing"),
		cut("half a failure", "    CHECK ((last_failure_detail IS NULL) = (last_failure_code IS NULL)),\n",
			"dovecote_deliveries: CHECK (last_failure_code needs last_failure_detail) is missing",
			"dovecote_deliveries: CHECK (last_failure_detail needs last_failure_code) is missing"),
		cut("long reason", "    CHECK (quarantine_reason IS NULL OR length(CAST(quarantine_reason AS BLOB)) <= 2048),\n",
			"dovecote_deliveries: CHECK (quarantine_reason has at most 2048 bytes) is missing"),
		swap("any state", "ELSE 0 END", "ELSE 1 END", "dovecote_deliveries: CHECK (state is a known one) is missing"),
		swap("a pending row with a token", "coalesce(claim_token, claimed_by, claim_expires_at, delivered_at, quarantined_at, quarantine_reason) IS NULL", "coalesce(claimed_by, claim_expires_at, delivered_at, quarantined_at, quarantine_reason) IS NULL",
			"dovecote_deliveries: CHECK (a pending row has no claim_token) is missing"),
		swap("a claimed row without expiry", "claimed_by IS NOT NULL AND claim_expires_at IS NOT NULL", "claimed_by IS NOT NULL",
			"dovecote_deliveries: CHECK (a claimed row has a claim_expires_at) is missing"),
		swap("a delivered row without time", "THEN delivered_at IS NOT NULL\n            AND", "THEN", "dovecote_deliveries: CHECK (a delivered row has a delivered_at) is missing"),
		swap("a quarantined row without reason", "quarantined_at IS NOT NULL AND quarantine_reason IS NOT NULL", "quarantined_at IS NOT NULL",
			"dovecote_deliveries: CHECK (a quarantined row has a quarantine_reason) is missing"),

		cut("no index for due rows", "CREATE INDEX dovecote_deliveries_claimable ON dovecote_deliveries (tenant_id, state, available_at, event_row_id);\n",
			"dovecote_deliveries: the indexes of claims are missing: "),
		swap("a due index in another order", "(tenant_id, state, available_at, event_row_id)", "(state, tenant_id, available_at, event_row_id)",
			"dovecote_deliveries: the indexes of claims are missing: "),
		add("an index of ours over other columns", "CREATE INDEX dovecote_deliveries_due ON dovecote_deliveries (event_row_id, available_at) WHERE state = 'pending';",
			"index dovecote_deliveries_due: another definition, want dovecote_deliveries (available_at, event_row_id) WHERE state = 'pending'"),
		add("an index of ours that is not partial", "CREATE INDEX dovecote_deliveries_due ON dovecote_deliveries (available_at, event_row_id);",
			"index dovecote_deliveries_due: another definition, want "),
		add("an index of ours for another state", "CREATE INDEX dovecote_deliveries_expiry ON dovecote_deliveries (claim_expires_at, event_row_id) WHERE state = 'pending';",
			"index dovecote_deliveries_expiry: another definition, want "),
		add("an index of ours for quarantined rows over another column", "CREATE INDEX dovecote_deliveries_quarantined ON dovecote_deliveries (quarantined_at) WHERE state = 'quarantined';",
			"index dovecote_deliveries_quarantined: another definition, want dovecote_deliveries (event_row_id) WHERE state = 'quarantined'"),
		add("an index of ours for fewer rows", "CREATE INDEX dovecote_deliveries_due ON dovecote_deliveries (available_at, event_row_id) WHERE state = 'pending' AND attempts = 0;",
			"index dovecote_deliveries_due: another definition, want "),
		add("a function that SQLite lacks", "CREATE INDEX dovecote_x ON dovecote_events (stream); PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE INDEX dovecote_x ON dovecote_events (no_such(stream))' WHERE name = 'dovecote_x'; PRAGMA writable_schema = OFF;",
			"index dovecote_x: its definition cannot be built: "),

		cut("no marker", "CREATE TABLE dovecote_schema (\n    schema_version INTEGER PRIMARY KEY CHECK (schema_version = 2),\n    minimum_crate_major INTEGER NOT NULL CHECK (minimum_crate_major >= 0),\n    minimum_crate_minor INTEGER NOT NULL CHECK (minimum_crate_minor >= 0),\n    minimum_crate_patch INTEGER NOT NULL CHECK (minimum_crate_patch >= 0),\n    rolling_compatible INTEGER NOT NULL\n);\nINSERT INTO dovecote_schema VALUES (2, 0, 2, 0, 0);\n",
			"table dovecote_schema is missing"),
		cut("no marker row", "INSERT INTO dovecote_schema VALUES (2, 0, 2, 0, 0);\n", "dovecote_schema: the marker is one row, found none"),
		swap("a marker for a later library", "VALUES (2, 0, 2, 0, 0)", "VALUES (2, 0, 3, 0, 0)", "dovecote_schema.minimum_crate_minor: is 3, want 2"),
		swap("a rolling marker", "VALUES (2, 0, 2, 0, 0)", "VALUES (2, 0, 2, 0, 1)", "dovecote_schema.rolling_compatible: is 1, want 0"),
		swap("half a marker", "    rolling_compatible INTEGER NOT NULL\n);\nINSERT INTO dovecote_schema VALUES (2, 0, 2, 0, 0)", "    spare INTEGER\n);\nINSERT INTO dovecote_schema VALUES (2, 0, 2, 0, 0)",
			"dovecote_schema.rolling_compatible: column is missing"),
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) { tc.run(t) })
	}
}

// schemaCase is a change of the fixture and what it must be found by.
type schemaCase struct {
	name   string
	oldNew []string
	want   []string // prefixes of the problems, all of them
}

func add(name, script string, want ...string) schemaCase {
	return schemaCase{name, []string{"CREATE INDEX dovecote_deliveries_expired_claims", script + "\nCREATE INDEX dovecote_deliveries_expired_claims"}, want}
}

func (tc schemaCase) run(t *testing.T) {
	problems := schemaProblems(t, readFixture(t, "foreign_v2.sql", tc.oldNew...))
	for _, w := range tc.want {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, w) }) {
			t.Errorf("not named: %s", w)
		}
	}
	for _, p := range problems {
		if !slices.ContainsFunc(tc.want, func(w string) bool { return strings.HasPrefix(p, w) }) {
			t.Errorf("named too: %s", p)
		}
	}
}

func TestSchemaOfAnotherVersion(t *testing.T) {
	newer := readFixture(t, "foreign_v2.sql", "CHECK (schema_version = 2),", ",", "VALUES (2, 0, 2, 0, 0)", "VALUES (3, 0, 3, 0, 0)")
	prepared := readFixture(t, "foreign_v1.sql") + "ALTER TABLE dovecote_events ADD COLUMN tenant_id TEXT; ALTER TABLE dovecote_deliveries ADD COLUMN tenant_id TEXT;"
	for _, tc := range []struct {
		name, script    string
		version         int
		problem, remedy string
	}{
		{"no outbox", "CREATE TABLE orders (id INTEGER)", 0, "no outbox tables", "relay migrate"},
		{"version 1", readFixture(t, "foreign_v1.sql"), 1, "schema version 1: its events have no tenant", "`relay migrate --tenant NAME`"},
		{"version 1 with a prepared tenant column", prepared, 1, "schema version 1", "`relay migrate --tenant NAME`"},
		{"newer", newer, 3, "schema version 3 is newer than this relay, which knows version 2", "newer relay"},
		{"half an outbox", "CREATE TABLE dovecote_deliveries (id INTEGER)", 0, "table dovecote_schema is missing", "restore"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db, path := rawDB(t, tc.script)
			var err *MigrationMismatchError
			if !errors.As(checkSchema(t.Context(), db, path), &err) {
				t.Fatal("passes")
			}
			if err.Version != tc.version || err.Path != path || !strings.Contains(err.Problems[0], tc.problem) || !strings.Contains(err.Remedy, tc.remedy) {
				t.Errorf("version %d: %v", err.Version, err)
			}
		})
	}
}

func TestSchemaCheckNamesForeignKeysThatAreOff(t *testing.T) {
	db, path := rawDB(t, readFixture(t, "foreign_v2.sql"))
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), `PRAGMA foreign_keys = OFF`); err != nil {
		t.Fatal(err)
	}
	var mismatch *MigrationMismatchError
	if err := checkSchema(t.Context(), conn, path); !errors.As(err, &mismatch) || len(mismatch.Problems) != 1 || !strings.Contains(mismatch.Problems[0], "foreign keys") {
		t.Errorf("%v", err)
	}
}

func TestSchemaCheckWritesNothing(t *testing.T) {
	db, path := rawDB(t, readFixture(t, "foreign_v2.sql", "ON DELETE RESTRICT", "ON DELETE CASCADE"))
	if _, err := db.Exec(`PRAGMA wal_checkpoint(truncate); PRAGMA query_only = ON`); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	if checkSchema(t.Context(), db, path) == nil {
		t.Fatal("passes")
	}
	after, _ := os.ReadFile(path)
	wal, _ := os.Stat(path + "-wal")
	if !slices.Equal(before, after) || wal.Size() != 0 {
		t.Error("the file changed")
	}
}

// A file can be made by hand. What it calls a definition must not be run when it
// is more than one.
func TestSchemaCheckRunsDefinitionsOnly(t *testing.T) {
	for text, want := range map[string]bool{
		"CREATE TABLE t (a TEXT DEFAULT ';', \"b;\" INT, [c;] INT, `d;` INT) -- ; end": true,
		"create index i on t (a) /* ; */":                                              true,
		"CREATE TABLE t (a); ATTACH 'x' AS x":                                          false,
		"CREATE TABLE t (a) -- \n; ATTACH 'x' AS x":                                    false,
		"CREATE TABLE t (a TEXT DEFAULT 'it''s');SELECT":                               false,
		"CREATE TABLE t (a TEXT DEFAULT ')":                                            false,
		"ATTACH 'x' AS x":                                                              false,
		"":                                                                             false,
	} {
		if got := singleStatement(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestSchemaCheckEndsWithItsContext(t *testing.T) {
	db, path := rawDB(t, readFixture(t, "foreign_v2.sql"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var mismatch *MigrationMismatchError
	if err := checkSchema(ctx, db, path); err == nil || errors.As(err, &mismatch) {
		t.Errorf("%v", err)
	}
}

func BenchmarkSchemaCheck(b *testing.B) {
	db, path := rawDB(b, readFixture(b, "foreign_v2.sql"))
	for b.Loop() {
		if err := checkSchema(b.Context(), db, path); err != nil {
			b.Fatal(err)
		}
	}
}
