package outbox

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"
)

func open(tb testing.TB, o Options) *Store {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	create(tb, path)
	return reopen(tb, path, o)
}

func reopen(tb testing.TB, path string, o Options) *Store {
	tb.Helper()
	s, err := Open(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func TestEveryConnectionHasItsPragmas(t *testing.T) {
	s := open(t, Options{BusyTimeout: 1500 * time.Millisecond, Synchronous: "full"})
	want := func(t *testing.T, q querier, pragma, value string) {
		t.Helper()
		var got string
		if err := q.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != value {
			t.Errorf("%s = %s, want %s (%v)", pragma, got, value, err)
		}
	}
	var conns []*sql.Conn
	for range maxReaders {
		c, err := s.reads.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		want(t, c, "foreign_keys", "1")
		want(t, c, "journal_mode", "wal")
		want(t, c, "busy_timeout", "1500")
		want(t, c, "query_only", "1")
	}
	for _, c := range conns {
		c.Close()
	}
	_, err := s.write(t.Context(), "test", func(ctx context.Context, tx *txn) error {
		want(t, tx.conn, "foreign_keys", "1")
		want(t, tx.conn, "journal_mode", "wal")
		want(t, tx.conn, "busy_timeout", "0")
		want(t, tx.conn, "synchronous", "2")
		want(t, tx.conn, "query_only", "0")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOperationTimeIsTheDatabases(t *testing.T) {
	s := open(t, Options{})
	for _, run := range []func(func(context.Context, *txn) error) error{
		func(fn func(context.Context, *txn) error) error { return s.read(t.Context(), "read", fn) },
		func(fn func(context.Context, *txn) error) error {
			_, err := s.write(t.Context(), "write", fn)
			return err
		},
	} {
		err := run(func(_ context.Context, tx *txn) error {
			if d := time.Since(tx.at); d < 0 || d > time.Minute || formatTime(tx.at) != tx.now {
				t.Errorf("operation time %v, %s", tx.at, tx.now)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
