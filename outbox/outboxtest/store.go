// Package outboxtest helps to test what uses an outbox: new stores that check
// themselves at the end of a test, and a driver that fails where it is told to.
package outboxtest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"modernc.org/sqlite"

	"github.com/outbox-relay/relay/outbox"
)

// NewStore makes an outbox file in tb's directory and opens it. When the test ends,
// the data is checked and the store closed. The functions adjust the options.
func NewStore(tb testing.TB, adjust ...func(*outbox.Options)) *outbox.Store {
	tb.Helper()
	return OpenStore(tb, NewFile(tb), adjust...)
}

// NewSpoiled is NewStore for a test that spoils rows: its data is not checked.
func NewSpoiled(tb testing.TB, adjust ...func(*outbox.Options)) *outbox.Store {
	tb.Helper()
	return open(tb, NewFile(tb), adjust)
}

// NewFile makes an outbox file in tb's directory and returns its path.
func NewFile(tb testing.TB) string {
	tb.Helper()
	template, err := template()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "outbox.db")
	if err := os.WriteFile(path, template, 0o644); err != nil {
		tb.Fatal(err)
	}
	return path
}

// template is an empty outbox file. Copying it is faster than migrating.
var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "outboxtest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "template.db")
	if _, err := outbox.Migrate(context.Background(), path, outbox.MigrateOptions{Create: true}); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// OpenStore opens an outbox file as NewStore does.
func OpenStore(tb testing.TB, path string, adjust ...func(*outbox.Options)) *outbox.Store {
	tb.Helper()
	// Cleanups run last in, first out: the check sees the store still open.
	s := open(tb, path, adjust)
	tb.Cleanup(func() { Check(tb, path) })
	return s
}

func open(tb testing.TB, path string, adjust []func(*outbox.Options)) *outbox.Store {
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

// Check fails tb for every broken invariant of the data in the file.
func Check(tb testing.TB, path string) {
	tb.Helper()
	s, err := outbox.Open(context.Background(), path, outbox.Options{ReadOnly: true})
	if err != nil {
		tb.Error(err)
		return
	}
	defer s.Close()
	findings, err := s.AllTenants().Check(context.Background(), 0)
	if err != nil {
		tb.Error(err)
	}
	for _, f := range findings {
		tb.Errorf("invariant: row %d: %s: %s", f.Row, f.Rule, f.Detail)
	}
}

// Producer opens the file as an app would, with a connection pool of its own. Its
// commits survive the process, not the machine, and do not wait for the disk.
func Producer(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	uri := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_pragma=synchronous(off)"}
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
