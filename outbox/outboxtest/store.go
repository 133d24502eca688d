// Package outboxtest helps to test what uses an outbox: new stores and a driver that fails where it is told to.
package outboxtest

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"modernc.org/sqlite"

	"github.com/outbox-relay/relay/outbox"
)

// NewStore makes an outbox file in tb's directory and opens it. It is closed when
// the test ends. The functions adjust the options.
func NewStore(tb testing.TB, adjust ...func(*outbox.Options)) *outbox.Store {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	if _, err := outbox.Migrate(context.Background(), path, outbox.MigrateOptions{Create: true}); err != nil {
		tb.Fatal(err)
	}
	return OpenStore(tb, path, adjust...)
}

// OpenStore opens an outbox file as NewStore does.
func OpenStore(tb testing.TB, path string, adjust ...func(*outbox.Options)) *outbox.Store {
	tb.Helper()
	var o outbox.Options
	for _, f := range adjust {
		f(&o)
	}
	s, err := outbox.Open(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Producer opens the file as an app would, with a connection pool of its own.
func Producer(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	uri := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)"}
	c, err := sqlite.NewConnector(uri.String())
	if err != nil {
		tb.Fatal(err)
	}
	db := sql.OpenDB(c)
	tb.Cleanup(func() { db.Close() })
	return db
}

// Enqueue commits the events in one transaction and returns their rows.
func Enqueue(tb testing.TB, db *sql.DB, events ...outbox.Event) []int64 {
	tb.Helper()
	tx, err := outbox.Begin(context.Background(), db)
	if err != nil {
		tb.Fatal(err)
	}
	defer tx.Rollback()
	receipts, err := outbox.EnqueueAll(context.Background(), tx, events)
	if err != nil {
		tb.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	rows := make([]int64, len(receipts))
	for i, r := range receipts {
		rows[i] = r.Row
	}
	return rows
}
