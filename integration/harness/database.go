//go:build unix

package harness

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/workload"
)

// Database is an outbox file as a foreign program sees it: through SQL alone.
type Database struct {
	tb   testing.TB
	Path string
	SQL  *sql.DB
}

// NewDatabase creates a file with "relay migrate --create" and adds the
// application's tables.
func NewDatabase(tb testing.TB) *Database {
	tb.Helper()
	return NewDatabaseIn(tb, tb.TempDir())
}

// NewDatabaseIn is NewDatabase with the directory.
func NewDatabaseIn(tb testing.TB, dir string) *Database {
	tb.Helper()
	path := filepath.Join(dir, "shop.db")
	MustRun(tb, "migrate", "--create", "--db", path)
	if err := workload.Prepare(context.Background(), path); err != nil {
		tb.Fatalf("harness: %v", err)
	}
	return OpenDatabase(tb, path)
}

// OpenDatabase opens an existing file. The test's cleanup closes it.
func OpenDatabase(tb testing.TB, path string) *Database {
	tb.Helper()
	db, err := workload.Open(path)
	if err != nil {
		tb.Fatalf("harness: %v", err)
	}
	tb.Cleanup(func() { db.Close() })
	return &Database{tb: tb, Path: path, SQL: db}
}

// Exec runs statements that have to succeed.
func (d *Database) Exec(query string, args ...any) {
	d.tb.Helper()
	if _, err := d.SQL.Exec(query, args...); err != nil {
		d.tb.Fatalf("harness: %s: %v", query, err)
	}
}

// Int is the single number that query selects.
func (d *Database) Int(query string, args ...any) int {
	d.tb.Helper()
	var n int
	if err := d.SQL.QueryRow(query, args...).Scan(&n); err != nil {
		d.tb.Fatalf("harness: %s: %v", query, err)
	}
	return n
}

const statesSQL = `
SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'claimed'),
       count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state = 'quarantined')
FROM dovecote_deliveries`

// States counts the deliveries by state.
type States struct{ Pending, Claimed, Delivered, Quarantined int }

func (s States) String() string {
	return fmt.Sprintf("%d pending, %d claimed, %d delivered, %d quarantined",
		s.Pending, s.Claimed, s.Delivered, s.Quarantined)
}

// States counts now.
func (d *Database) States() States {
	d.tb.Helper()
	var s States
	err := d.SQL.QueryRow(statesSQL).Scan(&s.Pending, &s.Claimed, &s.Delivered, &s.Quarantined)
	if err != nil {
		d.tb.Fatalf("harness: %s: %v", statesSQL, err)
	}
	return s
}

// WaitDelivered waits until every row is delivered and there are at least n.
func (d *Database) WaitDelivered(n int, within time.Duration) {
	d.tb.Helper()
	Eventually(d.tb, within, fmt.Sprintf("at least %d rows, all delivered", n), func() (bool, string) {
		s := d.States()
		return s.Delivered >= n && s.Pending+s.Claimed+s.Quarantined == 0, s.String()
	})
}
