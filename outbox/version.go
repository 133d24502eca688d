package outbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/outbox-relay/relay/migrations"
)

// querier reads: a *sql.DB, *sql.Conn or *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const tablesSQL = `
SELECT
  (SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'dovecote_schema'),
  (SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('dovecote_events', 'dovecote_deliveries')),
  (SELECT count(*) FROM pragma_table_info('dovecote_events') WHERE name = 'tenant_id' AND "notnull" = 1)`

const markerSQL = `SELECT count(*), ifnull(max(schema_version), 0) FROM dovecote_schema`

// schemaVersion tells which schema the file has: 0 for none, 1 for the tables
// without tenants (version 1 had no marker), 2 for ours.
func schemaVersion(ctx context.Context, q querier, path string) (int, error) {
	var marker, tables, tenants int
	if err := q.QueryRowContext(ctx, tablesSQL).Scan(&marker, &tables, &tenants); err != nil {
		return 0, err
	}
	mismatch := func(version int, problem, remedy string) (int, error) {
		return version, &MigrationMismatchError{Path: path, Version: version, Problems: []string{problem}, Remedy: remedy}
	}
	switch {
	case marker == 0 && tables == 0:
		return 0, nil
	case marker == 0 && tables == 2 && tenants == 0:
		return 1, nil
	case marker == 0:
		return mismatch(0, "the marker table dovecote_schema is missing", "restore the file from a backup")
	}
	var rows, version int
	if err := q.QueryRowContext(ctx, markerSQL).Scan(&rows, &version); err != nil {
		return 0, err
	}
	switch {
	case rows != 1:
		return mismatch(version, fmt.Sprintf("dovecote_schema has %d rows instead of one", rows), "restore the file from a backup")
	case version != migrations.Version:
		return mismatch(version, fmt.Sprintf("schema version %d, this program knows %d", version, migrations.Version), "use the program that made the file")
	}
	return version, nil
}

// checkMarker is nil for a file with our schema's marker.
func checkMarker(ctx context.Context, q querier, path string) error {
	version, err := schemaVersion(ctx, q, path)
	switch {
	case err != nil:
		return err
	case version == 0:
		return &MigrationMismatchError{Path: path, Problems: []string{"the database has no outbox schema"}, Remedy: "run `relay migrate`"}
	case version == 1:
		return versionOne(path)
	}
	return nil
}

func versionOne(path string) error {
	return &MigrationMismatchError{Path: path, Version: 1, Problems: []string{"schema version 1, without tenants"},
		Remedy: "run `relay migrate --tenant NAME` to give its rows a tenant"}
}
