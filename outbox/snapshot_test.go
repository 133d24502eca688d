package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func stamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func snapshot(tb testing.TB, h *outbox.Handle, o outbox.SnapshotOptions) *outbox.Snapshot {
	tb.Helper()
	s, err := h.Snapshot(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// drain reads a snapshot to its end.
func drain(tb testing.TB, s *outbox.Snapshot) ([]int64, error) {
	tb.Helper()
	rows := []int64{}
	for {
		page, err := s.Next(context.Background())
		if err != nil {
			return rows, err
		}
		rows = append(rows, entryRows(page)...)
	}
}

// released reports whether no read transaction keeps the log from being reused.
func released(tb testing.TB, db *sql.DB) bool {
	tb.Helper()
	must(tb, db, `UPDATE dovecote_deliveries SET attempts = attempts`)
	var busy, log, moved int
	if err := db.QueryRow(`PRAGMA wal_checkpoint(RESTART)`).Scan(&busy, &log, &moved); err != nil {
		tb.Fatal(err)
	}
	return busy == 0
}

func TestSnapshotShowsOneMoment(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	must(t, db, `PRAGMA busy_timeout = 0`)
	outboxtest.Enqueue(t, db, events("acme", 5)...)
	snap := snapshot(t, s.AllTenants(), outbox.SnapshotOptions{PageSize: 2, After: 1})
	if snap.Upper() != 5 || snap.Cursor() != 1 {
		t.Fatalf("upper %d, cursor %d", snap.Upper(), snap.Cursor())
	}
	claim(t, s.AllTenants(), 5)
	outboxtest.Enqueue(t, db, event("acme", "later"))
	for _, want := range [][]int64{{2, 3}, {4, 5}} {
		page, err := snap.Next(t.Context())
		if err != nil || !slices.Equal(entryRows(page), want) || snap.Cursor() != want[1] {
			t.Fatalf("%v, %v", entryRows(page), err)
		}
		for _, e := range page {
			if e.Delivery.State != outbox.Pending {
				t.Errorf("row %d is %s, as it became later", e.Row, e.Delivery.State)
			}
		}
	}
	if !released(t, db) {
		t.Error("the last page does not release the transaction")
	}
	for range 2 {
		if _, err := snap.Next(t.Context()); err != io.EOF {
			t.Error(err)
		}
	}
}

func TestSnapshotOfNothing(t *testing.T) {
	s := outboxtest.NewStore(t)
	outboxtest.Enqueue(t, outboxtest.Producer(t, s.Path()), event("acme", "1"))
	for name, snap := range map[string]*outbox.Snapshot{
		"no rows of the tenant": snapshot(t, tenant(t, s, "zeta"), outbox.SnapshotOptions{}),
		"after the last":        snapshot(t, s.AllTenants(), outbox.SnapshotOptions{After: 1}),
	} {
		if rows, err := drain(t, snap); err != io.EOF || len(rows) != 0 {
			t.Errorf("%s: %v, %v", name, rows, err)
		}
	}
}

func TestSnapshotPagesAreBoundedInBytes(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 12)...)
	must(t, db, `UPDATE dovecote_events SET data_kind = 'binary', data = zeroblob(3 << 20)`)
	snap := snapshot(t, s.AllTenants(), outbox.SnapshotOptions{})
	page, err := snap.Next(t.Context())
	if err != nil || len(page) != 3 {
		t.Errorf("a page of %d events of 3 MiB, %v", len(page), err)
	}
	rows, err := drain(t, snap)
	if err != io.EOF || len(rows) != 9 {
		t.Errorf("%v, %v", rows, err)
	}
}

// A snapshot releases its transaction however it ends.
func TestSnapshotEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, s *outbox.Snapshot, cancel context.CancelFunc)
		want error
	}{
		{"by Close", func(t *testing.T, s *outbox.Snapshot, _ context.CancelFunc) { s.Close(); s.Close() }, outbox.ErrSnapshotClosed},
		{"by its context", func(t *testing.T, s *outbox.Snapshot, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"by its time", func(t *testing.T, s *outbox.Snapshot, _ context.CancelFunc) { time.Sleep(time.Minute) }, outbox.ErrSnapshotBudget},
		{"by its pages", func(t *testing.T, s *outbox.Snapshot, _ context.CancelFunc) {
			for range 2 {
				s.Next(t.Context())
			}
		}, outbox.ErrSnapshotBudget},
		{"by the context of a page", func(t *testing.T, s *outbox.Snapshot, _ context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}, context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := outboxtest.NewStore(t)
				db := outboxtest.Producer(t, s.Path())
				outboxtest.Enqueue(t, db, events("acme", 30)...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				snap, err := s.AllTenants().Snapshot(ctx, outbox.SnapshotOptions{PageSize: 10, MaxPages: 2, MaxTime: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := snap.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				must(t, db, `PRAGMA busy_timeout = 0`)
				if released(t, db) {
					t.Fatal("a snapshot that is open keeps nothing")
				}
				tc.end(t, snap, cancel)
				synctest.Wait()
				if _, err := snap.Next(t.Context()); !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if !released(t, db) {
					t.Error("the transaction is still open")
				}
				snap.Close()
			})
		})
	}
}

func TestSnapshotValidates(t *testing.T) {
	h := outboxtest.NewStore(t).AllTenants()
	for _, o := range []outbox.SnapshotOptions{{PageSize: -1}, {PageSize: 1001}, {MaxPages: -1}} {
		if _, err := h.Snapshot(t.Context(), o); !errors.As(err, new(*outbox.InvalidLimitError)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := h.Snapshot(t.Context(), outbox.SnapshotOptions{MaxTime: -1}); err == nil {
		t.Error("negative time")
	}
}

// Row ids are given out under the writer slot. An event that is not committed when
// a snapshot begins has a row id above its upper bound, so a reader who goes on
// from its own cursor sees it, however late it commits.
func TestGoingOnFromASnapshotMissesNoLateCommit(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 3)...)
	tx, err := outbox.Begin(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	late, err := outbox.Enqueue(t.Context(), tx, event("acme", "late"))
	if err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, s.AllTenants(), outbox.SnapshotOptions{})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	outboxtest.Enqueue(t, db, event("acme", "last"))

	rows, err := drain(t, snap)
	if err != io.EOF || !slices.Equal(rows, []int64{1, 2, 3}) || late.Row <= snap.Upper() {
		t.Fatalf("%v, upper %d, late row %d, %v", rows, snap.Upper(), late.Row, err)
	}
	rows, err = drain(t, snapshot(t, s.AllTenants(), outbox.SnapshotOptions{After: snap.Cursor()}))
	if err != io.EOF || !slices.Equal(rows, []int64{4, 5}) {
		t.Errorf("%v, %v", rows, err)
	}
}

// A writer that sets row_id itself can commit a lower one later. A live cursor
// beyond it does not see it; a snapshot that began before has not seen it either, and
// one that begins after it does.
func TestARowIDSetByHandCanInvertTheOrder(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 3)...)
	must(t, db, `UPDATE dovecote_events SET event_id = event_id`)
	must(t, db, `INSERT INTO dovecote_events (row_id, tenant_id, stream, specversion, event_id, source, event_type) VALUES (100, 'acme', 's', '1.0', 'high', '/', 't')`)
	page, err := s.AllTenants().Page(t.Context(), 0, 10)
	if err != nil || !slices.Equal(entryRows(page), []int64{1, 2, 3, 100}) {
		t.Fatalf("%v, %v", entryRows(page), err)
	}
	before := snapshot(t, s.AllTenants(), outbox.SnapshotOptions{PageSize: 2})
	must(t, db, `INSERT INTO dovecote_events (row_id, tenant_id, stream, specversion, event_id, source, event_type) VALUES (50, 'acme', 's', '1.0', 'low', '/', 't')`)
	if page, err := s.AllTenants().Page(t.Context(), 100, 10); err != nil || len(page) != 0 {
		t.Errorf("live, from its cursor: %v, %v", entryRows(page), err)
	}
	if rows, err := drain(t, before); err != io.EOF || !slices.Equal(rows, []int64{1, 2, 3, 100}) {
		t.Errorf("snapshot begun before: %v, %v", rows, err)
	}
	if rows, err := drain(t, snapshot(t, s.AllTenants(), outbox.SnapshotOptions{})); err != io.EOF || !slices.Equal(rows, []int64{1, 2, 3, 50, 100}) {
		t.Errorf("snapshot begun after: %v, %v", rows, err)
	}
}
