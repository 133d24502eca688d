package relay

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/outbox-relay/relay/outbox"
)

// testFile is a new outbox file, and a producer's connection to it.
type testFile struct {
	path  string
	store *outbox.Store
	app   *sql.DB
	next  int
	spoil bool         // the test breaks the data's invariants itself
	clock atomic.Int64 // by how much the relay's clock has been set
}

// newFile makes an outbox. The relay's side of it has the test's clock, which in a
// bubble is a fake one; producers have SQLite's own. The first is set well ahead of the
// second, so that what is enqueued is due at once.
func newFile(tb testing.TB, o outbox.Options) *testFile {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	if _, err := outbox.Migrate(context.Background(), path, outbox.MigrateOptions{Create: true}); err != nil {
		tb.Fatal(err)
	}
	app, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		tb.Fatal(err)
	}
	app.SetMaxOpenConns(1)
	var real int64
	if err := app.QueryRow(`SELECT unixepoch()`).Scan(&real); err != nil {
		tb.Fatal(err)
	}
	ahead := time.Until(time.Unix(real, 0).Add(time.Hour))
	f := &testFile{path: path, app: app}
	o.Now = func() time.Time { return time.Now().Add(ahead + time.Duration(f.clock.Load())) }
	store, err := outbox.Open(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	f.store = store
	tb.Cleanup(func() {
		f.check(tb)
		app.Close()
		store.Close()
	})
	return f
}

// check verifies the invariants of the data.
func (f *testFile) check(tb testing.TB) {
	tb.Helper()
	if f.spoil {
		return
	}
	findings, err := f.store.AllTenants().Check(context.Background(), 0)
	if err != nil {
		tb.Errorf("check: %v", err)
	}
	for _, x := range findings {
		tb.Errorf("row %d breaks %s: %s", x.Row, x.Rule, x.Detail)
	}
}

// exec changes the file behind the library's back.
func (f *testFile) exec(tb testing.TB, query string, args ...any) {
	tb.Helper()
	if _, err := f.app.Exec(query, args...); err != nil {
		tb.Fatal(err)
	}
}

// event is a valid event on a stream.
func (f *testFile) event(stream string) outbox.Event {
	f.next++
	return outbox.Event{
		Tenant: "acme", Stream: stream, ID: fmt.Sprint(f.next), Source: "/test", Type: "test.event",
		ContentType: "application/json", Data: outbox.JSON([]byte(`{"n":1}`)),
	}
}

// enqueue commits n events on a stream and returns their rows.
func (f *testFile) enqueue(tb testing.TB, stream string, n int) []int64 {
	tb.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = f.event(stream)
	}
	return f.commit(tb, events...)
}

func (f *testFile) commit(tb testing.TB, events ...outbox.Event) []int64 {
	tb.Helper()
	tx, err := f.app.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	receipts, err := outbox.EnqueueAll(context.Background(), tx, events, outbox.MaxSize(16<<20))
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

// delivery reads one row's delivery.
func (f *testFile) delivery(tb testing.TB, row int64) outbox.Delivery {
	tb.Helper()
	e, err := f.store.AllTenants().Get(context.Background(), row)
	if err != nil {
		tb.Fatal(err)
	}
	return e.Delivery
}

// count counts the rows in a state.
func (f *testFile) count(tb testing.TB, state outbox.State) int {
	tb.Helper()
	n, after := 0, int64(0)
	for {
		page, err := f.store.AllTenants().List(context.Background(), outbox.Filter{State: state, After: after}, 1000)
		if err != nil {
			tb.Fatal(err)
		}
		n += len(page)
		if len(page) < 1000 {
			return n
		}
		after = page[len(page)-1].Row
	}
}
