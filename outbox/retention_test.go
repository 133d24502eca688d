package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func textAt(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// deliver and quarantine put rows into their state at a time, by hand.
func deliver(tb testing.TB, db *sql.DB, at time.Time, where string) {
	tb.Helper()
	must(tb, db, `UPDATE dovecote_deliveries SET state = 'delivered', attempts = 1, delivered_at = ? WHERE `+where, textAt(at))
}

func quarantine(tb testing.TB, db *sql.DB, at time.Time, where string) {
	tb.Helper()
	must(tb, db, `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = ?, quarantine_reason = 'too_large: 9 bytes' WHERE `+where, textAt(at))
}

// left are the rows that both tables have.
func left(tb testing.TB, db *sql.DB) []int64 {
	tb.Helper()
	rows, err := db.Query(`SELECT e.row_id FROM dovecote_events e JOIN dovecote_deliveries d ON d.event_row_id = e.row_id ORDER BY 1`)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	list := []int64{}
	for rows.Next() {
		var row int64
		if err := rows.Scan(&row); err != nil {
			tb.Fatal(err)
		}
		list = append(list, row)
	}
	if n := count(tb, db, `SELECT (SELECT count(*) FROM dovecote_events) + (SELECT count(*) FROM dovecote_deliveries)`); n != 2*len(list) {
		tb.Errorf("%d rows in both tables, %d pairs", n, len(list))
	}
	return list
}

func TestPruneTakesWhatIsOldEnough(t *testing.T) {
	hour := time.Hour
	// Rows 1..8 are of acme, 9 and 10 of zeta.
	build := func(t *testing.T) (*outbox.Store, *sql.DB) {
		c := &clock{noon}
		s := outboxtest.NewStore(t, c.option)
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", 8)...)
		outboxtest.Enqueue(t, db, events("zeta", 2)...)
		must(t, db, `UPDATE dovecote_deliveries SET available_at = '2020-01-01T00:00:00.000000Z'`)
		deliver(t, db, noon.Add(-2*hour), `event_row_id IN (2, 9)`)
		deliver(t, db, noon.Add(-hour-time.Millisecond), `event_row_id = 3`)
		deliver(t, db, noon.Add(-hour), `event_row_id = 4`)
		must(t, db, `UPDATE dovecote_deliveries SET delivered_at = '2026-05-01T09:00:00Z' WHERE event_row_id = 2`) // another library's form
		quarantine(t, db, noon.Add(-3*hour), `event_row_id IN (5, 10)`)
		quarantine(t, db, noon.Add(-hour), `event_row_id = 6`)
		must(t, db, `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = randomblob(16), claimed_by = 'w', claim_expires_at = '2020-01-01T00:00:00.000000Z' WHERE event_row_id = 7`)
		return s, db
	}
	for _, tc := range []struct {
		name    string
		tenant  string
		request outbox.PruneRequest
		want    outbox.Pruned
		gone    []int64
	}{
		{"nothing asked", "", outbox.PruneRequest{}, outbox.Pruned{}, nil},
		{"delivered", "", outbox.PruneRequest{Delivered: hour}, outbox.Pruned{Delivered: 3}, []int64{2, 3, 9}},
		{"quarantined", "", outbox.PruneRequest{Quarantined: hour}, outbox.Pruned{Quarantined: 2}, []int64{5, 10}},
		{"both, row by row", "", outbox.PruneRequest{Delivered: hour, Quarantined: hour, Batch: 1}, outbox.Pruned{Delivered: 3, Quarantined: 2}, []int64{2, 3, 5, 9, 10}},
		{"one tenant", "acme", outbox.PruneRequest{Delivered: hour, Quarantined: hour}, outbox.Pruned{Delivered: 2, Quarantined: 1}, []int64{2, 3, 5}},
		{"an age beyond all time", "", outbox.PruneRequest{Delivered: 200 * 365 * 24 * hour}, outbox.Pruned{}, nil},
		{"the shortest age", "", outbox.PruneRequest{Delivered: 1, Quarantined: 1}, outbox.Pruned{Delivered: 4, Quarantined: 3}, []int64{2, 3, 4, 5, 6, 9, 10}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, db := build(t)
			h := s.AllTenants()
			if tc.tenant != "" {
				h = tenant(t, s, tc.tenant)
			}
			dry := tc.request
			dry.DryRun = true
			if got, err := h.Prune(t.Context(), dry); err != nil || got != tc.want || len(left(t, db)) != 10 {
				t.Errorf("dry run: %+v, %v", got, err)
			}
			got, err := h.Prune(t.Context(), tc.request)
			want := slices.DeleteFunc([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, func(r int64) bool { return slices.Contains(tc.gone, r) })
			if rows := left(t, db); err != nil || got != tc.want || !slices.Equal(rows, want) {
				t.Errorf("%+v, left %v, want %v, %v", got, rows, want, err)
			}
		})
	}
}

func TestPruneValidates(t *testing.T) {
	h := outboxtest.NewStore(t).AllTenants()
	for _, batch := range []int{-1, 1001} {
		if _, err := h.Prune(t.Context(), outbox.PruneRequest{Delivered: 1, Batch: batch}); !errors.As(err, new(*outbox.InvalidLimitError)) {
			t.Errorf("batch %d: %v", batch, err)
		}
	}
	for _, r := range []outbox.PruneRequest{{Delivered: -1}, {Quarantined: -1}} {
		if _, err := h.Prune(t.Context(), r); err == nil {
			t.Errorf("%+v passes", r)
		}
	}
}

func TestPruneLeavesSpoiledTimesAndOrphans(t *testing.T) {
	s := outboxtest.NewSpoiled(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 6)...)
	deliver(t, db, stamp("2020-01-01T00:00:00Z"), `event_row_id = 6`)
	spoil(t, db, `
		UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '0' WHERE event_row_id = 1;
		UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = x'00' WHERE event_row_id = 2;
		UPDATE dovecote_deliveries SET state = 'delivered' WHERE event_row_id = 3;
		UPDATE dovecote_deliveries SET delivered_at = '2020-01-01T00:00:00.000000Z' WHERE event_row_id = 4;
		DELETE FROM dovecote_deliveries WHERE event_row_id = 5`)
	got, err := s.AllTenants().Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour, Quarantined: time.Hour})
	if err != nil || got != (outbox.Pruned{Delivered: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := count(t, db, `SELECT count(*) FROM dovecote_events WHERE row_id <= 5`); n != 5 {
		t.Errorf("%d events left", n)
	}
}

func TestPruneGoesInBoundedTransactions(t *testing.T) {
	build := func(t *testing.T, n, size int) (*outbox.Handle, *sql.DB) {
		s := outboxtest.NewStore(t)
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", n)...)
		must(t, db, `UPDATE dovecote_events SET data_kind = 'binary', data = zeroblob(?)`, size)
		deliver(t, db, stamp("2020-01-01T00:00:00Z"), `1 = 1`)
		return s.AllTenants(), db
	}
	for _, tc := range []struct {
		name       string
		rows, size int
		batch      int
		most       int64 // removed in a transaction, where the machine is not slow
	}{
		{"rows", 1100, 10, 0, 500},
		{"rows as asked", 7, 10, 3, 3},
		{"bytes", 9, 1 << 20, 0, 4},
		{"one row larger than that", 2, 5 << 20, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, db := build(t, tc.rows, tc.size)
			last := int64(0)
			got, err := h.Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour, Batch: tc.batch, Progress: func(n int64) {
				if n-last > tc.most || n == last {
					t.Errorf("%d rows in a transaction", n-last)
				}
				last = n
			}})
			if err != nil || got.Delivered != int64(tc.rows) || last != got.Delivered || len(left(t, db)) != 0 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// On a slow machine a transaction takes fewer rows, not longer.
func TestPruneHoldsTheWriterSlotForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := new(outboxtest.Faults)
		s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", 100)...)
		deliver(t, db, stamp("1990-01-01T00:00:00Z"), `1 = 1`)
		var began time.Time
		longest, transactions := time.Duration(0), 0
		faults.Before(func(query string, _ func(string) error) {
			switch {
			case query == "BEGIN IMMEDIATE":
				began = time.Now()
			case query == "COMMIT":
				longest = max(longest, time.Since(began))
				transactions++
			case strings.Contains(query, "DELETE"):
				time.Sleep(time.Millisecond)
			}
		})
		got, err := s.AllTenants().Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour})
		if err != nil || got.Delivered != 100 || longest > 10*time.Millisecond || transactions != 25 {
			t.Errorf("%+v, %v, %d transactions, the longest %v", got, err, transactions, longest)
		}
	})
}

func TestPruneFindsRowsAcrossGaps(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	want := int64(0)
	for _, row := range []int64{1, 19_999, 20_000, 20_001, 40_000, 1_000_000, 1 << 40, 1<<63 - 1} {
		must(t, db, `INSERT INTO dovecote_events (row_id, tenant_id, stream, specversion, event_id, source, event_type) VALUES (?1, 'acme', 's', '1.0', ?1, '/', 't')`, row)
		must(t, db, `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, delivered_at) VALUES (?, 'acme', 'delivered', '2020-01-01T00:00:00.000000Z')`, row)
		want++
	}
	got, err := s.AllTenants().Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour})
	if err != nil || got.Delivered != want || len(left(t, db)) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Statistics of a table that had one row make SQLite look through all of it.
func TestPruneWithStaleStatistics(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("zeta", 1)...)
	must(t, db, `ANALYZE`)
	must(t, db, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20100)
		INSERT INTO dovecote_events (tenant_id, stream, specversion, event_id, source, event_type) SELECT 'acme', 's', '1.0', i, '/', 't' FROM n`)
	must(t, db, `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state) SELECT row_id, tenant_id, 'pending' FROM dovecote_events WHERE row_id > 1`)
	s = outboxtest.OpenStore(t, s.Path()) // that reads the statistics
	deliver(t, db, stamp("2020-01-01T00:00:00Z"), `event_row_id > 1`)
	got, err := s.AllTenants().Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour, DryRun: true})
	if err != nil || got.Delivered != 20_100 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A row id is handed out once, whatever is pruned.
func TestRowIDsDoNotReturn(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	highest := int64(0)
	for range 3 {
		rows := outboxtest.Enqueue(t, db, events("acme", 5)...)
		if rows[0] <= highest {
			t.Fatalf("row %d after row %d", rows[0], highest)
		}
		highest = rows[4]
		deliver(t, db, stamp("2020-01-01T00:00:00Z"), `1 = 1`)
		if got, err := s.AllTenants().Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour}); err != nil || got.Delivered != 5 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

func TestPruneEndsWithItsContext(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 10)...)
	deliver(t, db, stamp("2020-01-01T00:00:00Z"), `1 = 1`)
	ctx, cancel := context.WithCancel(t.Context())
	got, err := s.AllTenants().Prune(ctx, outbox.PruneRequest{Delivered: time.Hour, Batch: 2, Progress: func(n int64) {
		if n == 4 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || got.Delivered != 4 || len(left(t, db)) != 6 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A row that changes between the look and the transaction is looked at again.
func TestPruneLeavesARowThatWasRequeuedMeanwhile(t *testing.T) {
	faults := new(outboxtest.Faults)
	s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 3)...)
	quarantine(t, db, stamp("2020-01-01T00:00:00Z"), `1 = 1`)
	once := sync.OnceFunc(func() {
		must(t, db, `UPDATE dovecote_deliveries SET state = 'pending', quarantined_at = NULL, quarantine_reason = NULL WHERE event_row_id = 2`)
	})
	faults.Before(func(query string, _ func(string) error) {
		if query == "BEGIN IMMEDIATE" {
			once()
		}
	})
	got, err := s.AllTenants().Prune(t.Context(), outbox.PruneRequest{Quarantined: time.Hour})
	if rows := left(t, db); err != nil || got.Quarantined != 2 || !slices.Equal(rows, []int64{2}) {
		t.Errorf("%+v, left %v, %v", got, rows, err)
	}
}

// Pruning goes on beside producers, a worker and an operator, and takes only what
// was delivered, while each of them gets its turn.
func TestPruneBesideWriters(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("old", 3000)...)
	deliver(t, db, stamp("2020-01-01T00:00:00Z"), `1 = 1`)
	h := s.AllTenants()
	stop := make(chan struct{})
	var enqueued, acked int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				outboxtest.Enqueue(t, db, event("new", fmt.Sprint(i)))
				enqueued++
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			claimed, err := h.Claim(context.Background(), "w", time.Minute, 10)
			var batch []outbox.Settlement
			for i, c := range claimed {
				batch = append(batch, settlement(c, actions[i%2*4])) // ack, quarantine
			}
			settled, err2 := h.Settle(context.Background(), batch)
			if err != nil || err2 != nil {
				t.Error(err, err2)
				return
			}
			for i, d := range settled {
				if d.Err != nil {
					t.Error(d.Err)
				}
				if batch[i].Action == outbox.Ack {
					acked++
				}
			}
		}
	})
	got, err := h.Prune(t.Context(), outbox.PruneRequest{Delivered: time.Hour, Quarantined: time.Hour, Batch: 50})
	close(stop)
	wg.Wait()
	if err != nil || got != (outbox.Pruned{Delivered: 3000}) {
		t.Errorf("%+v, %v", got, err)
	}
	if n := len(left(t, db)); int64(n) != enqueued || enqueued == 0 || acked == 0 {
		t.Errorf("%d rows left of %d new ones, %d acked", n, enqueued, acked)
	}
}

// Each step fails once. Whatever was done until then is whole, and trying again
// does the rest.
func TestEachStepOfAdministrationFailsOnce(t *testing.T) {
	rows := []int64{1, 2, 3, 4, 5, 6}
	for _, tc := range []struct {
		name    string
		prepare string
		run     func(h *outbox.Handle) error
		done    string // counts 0 when all is done
	}{
		{"prune", `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '2020-01-01T00:00:00.000000Z'`, func(h *outbox.Handle) error {
			_, err := h.Prune(context.Background(), outbox.PruneRequest{Delivered: time.Hour, Batch: 4})
			return err
		}, `SELECT count(*) FROM dovecote_events`},
		{"repair", `DELETE FROM dovecote_deliveries`, func(h *outbox.Handle) error {
			_, err := h.Repair(context.Background(), rows)
			return err
		}, `SELECT count(*) FROM dovecote_events WHERE row_id NOT IN (SELECT event_row_id FROM dovecote_deliveries)`},
		{"requeue", `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = available_at, quarantine_reason = 'r'`, func(h *outbox.Handle) error {
			_, err := h.Requeue(context.Background(), rows)
			return err
		}, `SELECT count(*) FROM dovecote_deliveries WHERE state <> 'pending'`},
		{"quarantine", `UPDATE dovecote_deliveries SET attempts = 0`, func(h *outbox.Handle) error {
			_, err := h.QuarantinePending(context.Background(), rows, "r")
			return err
		}, `SELECT count(*) FROM dovecote_deliveries WHERE state <> 'quarantined'`},
	} {
		codes := []int{outboxtest.IOError, outboxtest.Full}
		if testing.Short() {
			codes = codes[:1]
		}
		for _, code := range codes {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/after %t", tc.name, code, after), func(t *testing.T) {
					for n := 1; !failAdministration(t, tc.prepare, tc.run, tc.done, n, code, after); n++ {
						if testing.Short() && n > 12 {
							n += 4
						}
					}
				})
			}
		}
	}
}

// failAdministration fails step n, and reports whether there was none.
func failAdministration(t *testing.T, prepare string, run func(*outbox.Handle) error, done string, n, code int, after bool) bool {
	t.Helper()
	faults := new(outboxtest.Faults)
	s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 6)...)
	must(t, db, prepare)
	if after {
		faults.FailAfter(n, code)
	} else {
		faults.FailAt(n, code)
	}
	err := run(s.AllTenants())
	log := strings.Split(faults.Log(), "\n")
	if taken := faults.Disarm(); taken < n {
		if err != nil || count(t, db, done) != 0 {
			t.Fatalf("no fault: %v", err)
		}
		t.Logf("%d steps", taken)
		return true
	}
	if err != nil && outbox.FaultOf(err) == outbox.FaultOther {
		t.Fatalf("step %q: the driver's code is lost: %v", log[n-1], err)
	}
	if err == nil && count(t, db, done) != 0 {
		t.Fatalf("step %q failed, and the operation did not", log[n-1])
	}
	if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE event_row_id NOT IN (SELECT row_id FROM dovecote_events)`); n != 0 {
		t.Fatalf("step %q: %d deliveries without event", log[n-1], n)
	}
	if err := run(s.AllTenants()); err != nil || count(t, db, done) != 0 {
		t.Fatalf("step %q, then: %v", log[n-1], err)
	}
	return false
}
