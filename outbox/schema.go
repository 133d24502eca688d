package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-relay/relay/migrations"
)

// querier is the part of *sql.DB, *sql.Conn and *sql.Tx that reading needs.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// schemaReport says what a file's schema is and what it lacks.
type schemaReport struct {
	version  int // 1: without tenants, else what the marker says; 0: no marker
	problems []string
	remedy   string
	absent   bool // there is no outbox at all
	slow     bool // nothing is wrong but that no set of indexes serves claims
}

// err is the report as an error: nil when the schema is ours.
func (r schemaReport) err(path string) error {
	if len(r.problems) == 0 {
		return nil
	}
	return &MigrationMismatchError{Path: path, Version: r.version, Problems: r.problems, Remedy: r.remedy}
}

// checkSchema compares the schema behind q with version 2 and returns nil or a
// *MigrationMismatchError that names each difference, foreign keys that are not
// enforced on this connection among them. It reads, and repairs nothing.
//
// The comparison is one of meaning, not of text: what the tables, keys and
// constraints of the file accept and refuse is tried out on an empty copy of
// them in memory. Tables, columns and indexes that an app added are no
// difference as long as a producer that knows only the contract can write.
// Triggers are not looked at: an app may watch its outbox with them.
func checkSchema(ctx context.Context, q querier, path string) error {
	r, err := inspectSchema(ctx, q)
	if err != nil {
		return err
	}
	on, err := foreignKeysOn(ctx, q)
	if err != nil {
		return err
	}
	if !on && r.version == migrations.Version {
		r.problems = append(r.problems, "foreign keys are not enforced on this connection")
	}
	return r.err(path)
}

// inspectSchema is checkSchema with the details. Its error is for what kept
// it from looking.
func inspectSchema(ctx context.Context, q querier) (schemaReport, error) {
	defs, err := readDefinitions(ctx, q)
	if err != nil {
		return schemaReport{}, err
	}
	if !defs.has("dovecote_schema") {
		return inspectUnmarked(ctx, defs)
	}
	version, problems, err := readMarker(ctx, q)
	switch {
	case err != nil:
		return schemaReport{}, err
	case version > migrations.Version:
		return schemaReport{
			version:  version,
			problems: []string{fmt.Sprintf("schema version %d is newer than this relay, which knows version %d", version, migrations.Version)},
			remedy:   "install a newer relay",
		}, nil
	case version == 1:
		return versionOne(), nil
	}
	return inspectTables(ctx, defs, version, problems)
}

// inspectUnmarked reports on a file without a marker table.
func inspectUnmarked(ctx context.Context, defs definitions) (schemaReport, error) {
	if !defs.has("dovecote_events") && !defs.has("dovecote_deliveries") {
		return schemaReport{
			absent:   true,
			problems: []string{"the database has no outbox tables"},
			remedy:   "create them with `relay migrate`",
		}, nil
	}
	c, err := copySchema(ctx, defs)
	if err != nil {
		return schemaReport{}, err
	}
	defer c.close()
	if c.versionOne(ctx) {
		return versionOne(), c.err
	}
	c.problem("table dovecote_schema is missing")
	c.checkTables(ctx)
	return c.report(0), c.err
}

func versionOne() schemaReport {
	return schemaReport{
		version:  1,
		problems: []string{"schema version 1: its events have no tenant"},
		remedy:   "take it to version 2 with `relay migrate --tenant NAME`",
	}
}

// inspectTables reports on the tables of a marked file.
func inspectTables(ctx context.Context, defs definitions, version int, problems []string) (schemaReport, error) {
	c, err := copySchema(ctx, defs)
	if err != nil {
		return schemaReport{}, err
	}
	defer c.close()
	c.problems = append(problems, c.problems...)
	c.checkTables(ctx)
	return c.report(version), c.err
}

// outboxTables are the tables of an outbox, parents first.
var outboxTables = []string{"dovecote_schema", "dovecote_events", "dovecote_deliveries"}

// definition is an entry of sqlite_schema; sql is empty for an index that
// belongs to a constraint.
type definition struct{ kind, name, table, sql string }

type definitions []definition

func (d definitions) has(table string) bool {
	return slices.ContainsFunc(d, func(x definition) bool {
		return x.kind == "table" && strings.EqualFold(x.name, table)
	})
}

const definitionsSQL = `
SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema
WHERE tbl_name COLLATE NOCASE IN ('dovecote_schema', 'dovecote_events', 'dovecote_deliveries')
	AND type IN ('table', 'index')
ORDER BY type DESC, rootpage`

func readDefinitions(ctx context.Context, q querier) (definitions, error) {
	const op = "read schema"
	rows, err := q.QueryContext(ctx, definitionsSQL)
	if err != nil {
		return nil, &SQLError{op, err}
	}
	defer rows.Close()
	var defs definitions
	for rows.Next() {
		var d definition
		if err := rows.Scan(&d.kind, &d.name, &d.table, &d.sql); err != nil {
			return nil, &SQLError{op, err}
		}
		defs = append(defs, d)
	}
	if err := rows.Err(); err != nil {
		return nil, &SQLError{op, err}
	}
	return defs, nil
}

// marker are the columns of dovecote_schema with the values of version 2.
var marker = []struct {
	column string
	want   int64
}{
	{"schema_version", migrations.Version},
	{"minimum_crate_major", 0},
	{"minimum_crate_minor", 2},
	{"minimum_crate_patch", 0},
	{"rolling_compatible", 0},
}

// readMarker returns the schema version of the marker row and what is wrong with
// that row. Whole rows are read, so that a missing column is a finding and no
// SQL error.
func readMarker(ctx context.Context, q querier) (version int, problems []string, err error) {
	const op = "read schema marker"
	rows, err := q.QueryContext(ctx, `SELECT * FROM dovecote_schema LIMIT 2`)
	if err != nil {
		return 0, nil, &SQLError{op, err}
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, nil, &SQLError{op, err}
	}
	values := make([]any, len(columns))
	dest := make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	n := 0
	for ; rows.Next(); n++ {
		if err := rows.Scan(dest...); err != nil {
			return 0, nil, &SQLError{op, err}
		}
	}
	if err := rows.Err(); err != nil {
		return 0, nil, &SQLError{op, err}
	}
	if n != 1 {
		return 0, []string{fmt.Sprintf("dovecote_schema: the marker is one row, found %s", [...]string{0: "none", 2: "several"}[n])}, nil
	}
	for _, m := range marker {
		i := slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, m.column) })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("dovecote_schema.%s: column is missing", m.column))
			continue
		}
		v, ok := values[i].(int64)
		if m.column == "schema_version" && ok {
			version = int(v)
		}
		if !ok || v != m.want {
			problems = append(problems, fmt.Sprintf("dovecote_schema.%s: is %v, want %d", m.column, values[i], m.want))
		}
	}
	return version, problems, nil
}

func foreignKeysOn(ctx context.Context, q querier) (bool, error) {
	var on int
	if err := q.QueryRowContext(ctx, `PRAGMA foreign_keys`).Scan(&on); err != nil {
		return false, &SQLError{"read PRAGMA foreign_keys", err}
	}
	return on == 1, nil
}
