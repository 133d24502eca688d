package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-relay/relay/migrations"
)

// upgradeSteps take a version 1 file to version 2: both tables are made anew,
// since SQLite cannot add their keys in place, and every row is copied as it
// stands. Row ids stay, and so does the highest one ever given out. Events
// without a delivery stay that, for reconciliation to find.
//
// The error is for a file that should not be taken up as it is: a
// *MigrationMismatchError that names what would be lost, or rows that break a
// rule. The steps need a connection that neither enforces foreign keys nor
// rewrites references to a renamed table: an app's own foreign keys and views
// then go on with the new tables.
func upgradeSteps(ctx context.Context, q querier, path, tenant string) ([]step, error) {
	if err := validTenant(tenant); err != nil {
		return nil, err
	}
	prepared, err := hasColumn(ctx, q, "dovecote_events", "tenant_id")
	if err != nil {
		return nil, err
	}
	if err := upgradable(ctx, q, path, tenant, prepared); err != nil {
		return nil, err
	}
	var highest int64
	return []step{
		{"move the version 1 tables aside", func(ctx context.Context, t *txn) (err error) {
			highest, err = moveAside(ctx, t)
			return err
		}},
		script(createTables, migrations.Outbox),
		script(createIndexes, migrations.Indexes),
		{fmt.Sprintf("copy the rows to tenant %q", tenant), func(ctx context.Context, t *txn) error {
			return copyRows(ctx, t, tenant, prepared, highest)
		}},
		script("drop the version 1 tables", dropAsideSQL),
	}, nil
}

// foreignObjectsSQL finds what hangs on the tables without belonging to version 1
// and would go with them.
const foreignObjectsSQL = `
SELECT type || ' ' || name || ' does not belong to version 1' FROM sqlite_schema
WHERE tbl_name COLLATE NOCASE IN ('dovecote_events', 'dovecote_deliveries') AND sql IS NOT NULL AND (type = 'trigger'
	OR type = 'index' AND name NOT IN ('dovecote_events_source_event_id', 'dovecote_deliveries_claimable', 'dovecote_deliveries_expired_claims'))`

const ownerlessSQL = `
SELECT 'dovecote_deliveries row ' || event_row_id || ' has no event' FROM dovecote_deliveries
WHERE event_row_id NOT IN (SELECT row_id FROM dovecote_events) LIMIT 10`

// upgradable names what stops an upgrade.
func upgradable(ctx context.Context, q querier, path, tenant string, prepared bool) error {
	checks := []string{foreignObjectsSQL, ownerlessSQL}
	if prepared {
		checks = append(checks, preparedTenantsSQL)
	}
	var problems []string
	for _, query := range checks {
		found, err := texts(ctx, q, query)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	for _, t := range tables {
		columns, err := texts(ctx, q, `SELECT lower(name) FROM pragma_table_xinfo(?)`, t.name)
		if err != nil {
			return err
		}
		for _, column := range columns {
			if !slices.ContainsFunc(t.specs, func(s columnSpec) bool { return s.name == column }) {
				problems = append(problems, fmt.Sprintf("column %s.%s does not belong to version 1", t.name, column))
			}
		}
	}
	if prepared {
		found, err := preparedTenants(ctx, q)
		if err != nil {
			return err
		}
		problems = append(problems, found...)
	}
	if len(problems) == 0 {
		return nil
	}
	return &MigrationMismatchError{
		Path: path, Version: 1, Problems: problems,
		Remedy: "remove these first; make an app's own indexes, triggers and columns again after the upgrade",
	}
}

// preparedTenantsSQL finds rows of a prepared file whose tenants contradict each
// other.
const preparedTenantsSQL = `
SELECT 'row ' || e.row_id || ' has another tenant in dovecote_deliveries' FROM dovecote_events e
JOIN dovecote_deliveries d ON d.event_row_id = e.row_id
WHERE d.tenant_id IS NOT NULL AND d.tenant_id IS NOT e.tenant_id LIMIT 10`

// preparedTenants names the tenants of a prepared file that are none.
func preparedTenants(ctx context.Context, q querier) ([]string, error) {
	names, err := texts(ctx, q, `SELECT DISTINCT tenant_id FROM dovecote_events WHERE tenant_id IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, name := range names {
		if err := validTenant(name); err != nil {
			problems = append(problems, fmt.Sprintf("tenant %q: %v", clip(name, 64), err))
		}
	}
	return problems, nil
}

func hasColumn(ctx context.Context, q querier, table, column string) (bool, error) {
	columns, err := texts(ctx, q, `SELECT lower(name) FROM pragma_table_info(?)`, table)
	return slices.Contains(columns, column), err
}

// texts reads a column of texts.
func texts(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

const (
	sequenceSQL = `SELECT seq FROM sqlite_sequence WHERE name = 'dovecote_events'`
	asideSQL    = `
ALTER TABLE dovecote_deliveries RENAME TO dovecote_deliveries_v1;
ALTER TABLE dovecote_events RENAME TO dovecote_events_v1;`
	dropAsideSQL = `
DROP TABLE dovecote_deliveries_v1;
DROP TABLE dovecote_events_v1;`
)

// moveAside renames the tables, whose indexes go with them, and returns the highest row id ever given out.
func moveAside(ctx context.Context, t *txn) (int64, error) {
	var highest int64
	err := t.conn.QueryRowContext(ctx, sequenceSQL).Scan(&highest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	_, err = t.conn.ExecContext(ctx, asideSQL)
	return highest, err
}

// Copies; %s is the tenant of a row, and ? the one that is given to rows
// without.
const (
	copyEventsSQL = `
INSERT INTO dovecote_events
	(row_id, tenant_id, stream, specversion, event_id, source, event_type, subject, occurred_at,
	datacontenttype, dataschema, partitionkey, extensions, data_kind, data, enqueued_at)
SELECT row_id, %s, stream, specversion, event_id, source, event_type, subject, occurred_at,
	datacontenttype, dataschema, partitionkey, extensions, data_kind, data, enqueued_at
FROM dovecote_events_v1 e ORDER BY row_id`
	copyDeliveriesSQL = `
INSERT INTO dovecote_deliveries
	(event_row_id, tenant_id, state, available_at, attempts, claim_token, claimed_by, claim_expires_at,
	last_failure_code, last_failure_detail, delivered_at, quarantined_at, quarantine_reason)
SELECT event_row_id, %s, state, available_at, attempts, claim_token, claimed_by, claim_expires_at,
	last_failure_code, last_failure_detail, delivered_at, quarantined_at, quarantine_reason
FROM dovecote_deliveries_v1 d ORDER BY event_row_id`
	plainTenantSQL    = `?`
	preparedTenantSQL = `coalesce((SELECT p.tenant_id FROM dovecote_events_v1 p WHERE p.row_id = %s), ?)`
)

const (
	startSequenceSQL = `
INSERT INTO sqlite_sequence (name, seq)
SELECT 'dovecote_events', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'dovecote_events')`
	raiseSequenceSQL = `UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'dovecote_events'`
)

func copyRows(ctx context.Context, t *txn, tenant string, prepared bool, highest int64) error {
	for _, c := range []struct{ what, query, key string }{
		{"events", copyEventsSQL, "e.row_id"},
		{"deliveries", copyDeliveriesSQL, "d.event_row_id"},
	} {
		value := plainTenantSQL
		if prepared {
			value = strings.Replace(preparedTenantSQL, "%s", c.key, 1)
		}
		if _, err := t.conn.ExecContext(ctx, strings.Replace(c.query, "%s", value, 1), tenant); err != nil {
			return &SQLError{"copy " + c.what + " to version 2", err}
		}
	}
	if _, err := t.conn.ExecContext(ctx, startSequenceSQL); err != nil {
		return err
	}
	_, err := t.conn.ExecContext(ctx, raiseSequenceSQL, highest)
	return err
}
