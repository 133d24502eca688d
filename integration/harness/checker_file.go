//go:build unix

package harness

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
)

// order is a row of the application's table: the truth about what was committed.
type order struct {
	Identity
	Stream, Type, Body string // Body: hex SHA-256; "" is not known
}

// row is an event of the file with its delivery; State "" is a missing delivery.
type row struct {
	order
	Row                        int64
	State, DeliveryTenant      string
	Attempts                   int64
	Token, Worker, Expiry      bool // set
	DeliveredAt, QuarantinedAt bool
	Reason, Code, Detail       bool
	ReasonText                 string
}

// fileState is what the file holds.
type fileState struct {
	orders  []order
	rows    []row
	strays  int      // deliveries without an event
	general []string // SQLite's own findings
}

const checkerRowsSQL = `
SELECT e.row_id, e.tenant_id, e.source, e.event_id, e.stream, e.event_type, e.data,
  coalesce(d.state, ''), coalesce(d.tenant_id, ''), coalesce(d.attempts, 0),
  d.claim_token IS NOT NULL, d.claimed_by IS NOT NULL, d.claim_expires_at IS NOT NULL,
  d.delivered_at IS NOT NULL, d.quarantined_at IS NOT NULL, d.quarantine_reason IS NOT NULL,
  d.last_failure_code IS NOT NULL, d.last_failure_detail IS NOT NULL, coalesce(d.quarantine_reason, '')
FROM dovecote_events e LEFT JOIN dovecote_deliveries d ON d.event_row_id = e.row_id
ORDER BY e.row_id`

const checkerOrdersSQL = `SELECT tenant, source, id, stream, type, body_sha256 FROM shop_orders`

const checkerStraysSQL = `
SELECT count(*) FROM dovecote_deliveries
WHERE event_row_id NOT IN (SELECT row_id FROM dovecote_events)`

// readFile reads the file in one transaction.
func readFile(db *sql.DB) (fileState, error) {
	var state fileState
	tx, err := db.Begin()
	if err != nil {
		return state, err
	}
	defer tx.Rollback()
	err = errors.Join(
		each(tx, checkerOrdersSQL, state.scanOrder),
		each(tx, checkerRowsSQL, state.scanRow),
		tx.QueryRow(checkerStraysSQL).Scan(&state.strays),
		each(tx, "PRAGMA integrity_check", state.scanIntegrity),
		each(tx, "PRAGMA foreign_key_check", func(*sql.Rows) error {
			state.general = append(state.general, "a foreign key is violated")
			return nil
		}),
	)
	return state, err
}

func (s *fileState) scanOrder(rows *sql.Rows) error {
	var o order
	err := rows.Scan(&o.Tenant, &o.Source, &o.ID, &o.Stream, &o.Type, &o.Body)
	s.orders = append(s.orders, o)
	return err
}

func (s *fileState) scanRow(rows *sql.Rows) error {
	var r row
	var data []byte
	err := rows.Scan(&r.Row, &r.Tenant, &r.Source, &r.ID, &r.Stream, &r.Type, &data,
		&r.State, &r.DeliveryTenant, &r.Attempts, &r.Token, &r.Worker, &r.Expiry,
		&r.DeliveredAt, &r.QuarantinedAt, &r.Reason, &r.Code, &r.Detail, &r.ReasonText)
	r.Body = digest(data)
	s.rows = append(s.rows, r)
	return err
}

func (s *fileState) scanIntegrity(rows *sql.Rows) error {
	var finding string
	err := rows.Scan(&finding)
	if finding != "ok" {
		s.general = append(s.general, finding)
	}
	return err
}

func each(tx *sql.Tx, query string, row func(*sql.Rows) error) error {
	rows, err := tx.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// digest is the form in which bodies are compared.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
