package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outbox-relay/relay/migrations"
)

// upgradeSteps take a version 1 file to version 2: both tables are made anew,
// since SQLite cannot add their keys in place. Row ids stay, and so does the highest
// one ever given out.
func upgradeSteps(tenant string) []step {
	var highest int64
	return []step{
		{"move the version 1 tables aside", func(ctx context.Context, t *txn) (err error) {
			highest, err = highestRow(ctx, t.conn)
			if err == nil {
				_, err = t.conn.ExecContext(ctx, asideSQL)
			}
			return err
		}},
		script(createTables, migrations.Outbox),
		script(createIndexes, migrations.Indexes),
		{fmt.Sprintf("copy the rows to tenant %q", tenant), func(ctx context.Context, t *txn) error {
			return copyRows(ctx, t.conn, tenant, highest)
		}},
		script("drop the version 1 tables", dropAsideSQL),
	}
}

const asideSQL = `
ALTER TABLE dovecote_deliveries RENAME TO dovecote_deliveries_v1;
ALTER TABLE dovecote_events RENAME TO dovecote_events_v1;`

const dropAsideSQL = `
DROP TABLE dovecote_deliveries_v1;
DROP TABLE dovecote_events_v1;`

const sequenceSQL = `SELECT seq FROM sqlite_sequence WHERE name = 'dovecote_events'`

func highestRow(ctx context.Context, q querier) (int64, error) {
	var n int64
	err := q.QueryRowContext(ctx, sequenceSQL).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

const copyEventsSQL = `
INSERT INTO dovecote_events
  (row_id, tenant_id, stream, specversion, event_id, source, event_type, subject, occurred_at,
   datacontenttype, dataschema, partitionkey, extensions, data_kind, data, enqueued_at)
SELECT row_id, ?, stream, specversion, event_id, source, event_type, subject, occurred_at,
       datacontenttype, dataschema, partitionkey, extensions, data_kind, data, enqueued_at
FROM dovecote_events_v1 ORDER BY row_id`

const copyDeliveriesSQL = `
INSERT INTO dovecote_deliveries
  (event_row_id, tenant_id, state, available_at, attempts, claim_token, claimed_by, claim_expires_at,
   last_failure_code, last_failure_detail, delivered_at, quarantined_at, quarantine_reason)
SELECT event_row_id, ?, state, available_at, attempts, claim_token, claimed_by, claim_expires_at,
       last_failure_code, last_failure_detail, delivered_at, quarantined_at, quarantine_reason
FROM dovecote_deliveries_v1 ORDER BY event_row_id`

const keepSequenceSQL = `
INSERT INTO sqlite_sequence (name, seq)
SELECT 'dovecote_events', 0
WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'dovecote_events')`

const raiseSequenceSQL = `UPDATE sqlite_sequence SET seq = ? WHERE name = 'dovecote_events' AND seq < ?`

const brokenKeysSQL = `SELECT count(*) FROM pragma_foreign_key_check('dovecote_deliveries')`

func copyRows(ctx context.Context, conn *sql.Conn, tenant string, highest int64) error {
	for _, query := range []string{copyEventsSQL, copyDeliveriesSQL} {
		if _, err := conn.ExecContext(ctx, query, tenant); err != nil {
			return err
		}
	}
	if _, err := conn.ExecContext(ctx, keepSequenceSQL); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, raiseSequenceSQL, highest, highest); err != nil {
		return err
	}
	var broken int
	if err := conn.QueryRowContext(ctx, brokenKeysSQL).Scan(&broken); err != nil {
		return err
	}
	if broken > 0 {
		return fmt.Errorf("%d deliveries have no event; remove them first", broken)
	}
	return nil
}
