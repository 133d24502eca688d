package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// drivers are those that a producer may bring. Only one of them opens a file: in
// one process their locks do not see each other.
var drivers = map[string]string{"modernc": "sqlite", "ncruces": "sqlite3"}

// eachDriver runs test with a new outbox file and a pool of each driver, made
// with the given query.
func eachDriver(t *testing.T, query string, test func(t *testing.T, db *sql.DB)) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			path := outboxtest.NewFile(t)
			db, err := sql.Open(driver, "file:"+path+"?"+query)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			test(t, db)
		})
	}
}

const patient = "_pragma=busy_timeout(5000)"

// inTx runs fn in a transaction and commits it.
func inTx(tb testing.TB, db *sql.DB, fn func(tx *sql.Tx)) {
	tb.Helper()
	tx, err := outbox.Begin(context.Background(), db)
	if err != nil {
		tb.Fatal(err)
	}
	defer tx.Rollback()
	fn(tx)
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
}

func count(tb testing.TB, db *sql.DB, query string, args ...any) int {
	tb.Helper()
	var n int
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

func full() outbox.Event {
	e := event("acme", "full")
	e.Subject, e.PartitionKey = "sub", "key"
	e.Time = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	e.DataSchema = "https://example.com/schema"
	e.Extensions = map[string]outbox.Value{"flag": outbox.Bool(true), "text": outbox.String("x")}
	return e
}

func TestEnqueueOutcomes(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		inTx(t, db, func(tx *sql.Tx) {
			first, err := outbox.Enqueue(t.Context(), tx, full())
			if err != nil || first.Outcome != outbox.Enqueued || first.Row <= 0 {
				t.Fatalf("%+v, %v", first, err)
			}
			again, err := outbox.Enqueue(t.Context(), tx, full())
			if err != nil || again.Outcome != outbox.AlreadyEnqueued || again.Row != first.Row {
				t.Fatalf("in the same transaction: %+v, %v", again, err)
			}
		})
		inTx(t, db, func(tx *sql.Tx) {
			again, err := outbox.Enqueue(t.Context(), tx, full())
			if err != nil || again.Outcome != outbox.AlreadyEnqueued {
				t.Fatalf("in another transaction: %+v, %v", again, err)
			}
		})
		if n := count(t, db, `SELECT count(*) FROM dovecote_events JOIN dovecote_deliveries ON row_id = event_row_id AND state = 'pending'`); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestEnqueueComparesEveryField(t *testing.T) {
	changes := map[string]func(*outbox.Event){
		"stream":                func(e *outbox.Event) { e.Stream = "other" },
		"type":                  func(e *outbox.Event) { e.Type += "x" },
		"subject":               func(e *outbox.Event) { e.Subject = "SUB" },
		"absent subject":        func(e *outbox.Event) { e.Subject = "" },
		"time by a microsecond": func(e *outbox.Event) { e.Time = e.Time.Add(time.Microsecond) },
		"absent time":           func(e *outbox.Event) { e.Time = time.Time{} },
		"content type":          func(e *outbox.Event) { e.ContentType = "application/JSON" },
		"schema":                func(e *outbox.Event) { e.DataSchema += "/" },
		"partition key":         func(e *outbox.Event) { e.PartitionKey = "" },
		"extension value":       func(e *outbox.Event) { e.Extensions["flag"] = outbox.Bool(false) },
		"extension type":        func(e *outbox.Event) { e.Extensions["text"] = outbox.URIReference("x") },
		"another extension":     func(e *outbox.Event) { e.Extensions["more"] = outbox.Int(1) },
		"one extension less":    func(e *outbox.Event) { delete(e.Extensions, "flag") },
		"blanks in JSON":        func(e *outbox.Event) { e.Data = outbox.JSON([]byte(`{"id": 1}`)) },
		"number of a JSON":      func(e *outbox.Event) { e.Data = outbox.JSON([]byte(`{"id":1.0}`)) },
		"kind of data":          func(e *outbox.Event) { e.Data = outbox.Binary([]byte(`{"id":1}`)) },
		"empty data":            func(e *outbox.Event) { e.Data = outbox.Binary(nil) },
		"absent data":           func(e *outbox.Event) { e.Data = outbox.Data{} },
	}
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		var row int64
		inTx(t, db, func(tx *sql.Tx) {
			r, err := outbox.Enqueue(t.Context(), tx, full())
			if err != nil {
				t.Fatal(err)
			}
			row = r.Row
		})
		for name, change := range changes {
			inTx(t, db, func(tx *sql.Tx) {
				e := full()
				change(&e)
				_, err := outbox.Enqueue(t.Context(), tx, e)
				var conflict *outbox.IdempotencyConflictError
				if !errors.As(err, &conflict) || conflict.Row != row {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		for name, change := range map[string]func(*outbox.Event){
			"tenant": func(e *outbox.Event) { e.Tenant = "other" },
			"source": func(e *outbox.Event) { e.Source = "/ORDERS" },
			"id":     func(e *outbox.Event) { e.ID = "FULL" },
		} {
			inTx(t, db, func(tx *sql.Tx) {
				e := full()
				change(&e)
				if r, err := outbox.Enqueue(t.Context(), tx, e); err != nil || r.Outcome != outbox.Enqueued {
					t.Errorf("another %s: %+v, %v", name, r, err)
				}
			})
		}
	})
}

func TestEnqueueKeepsAbsentEmptyAndFullDataApart(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		for _, tc := range []struct {
			name, kind string
			data       outbox.Data
			length     any
		}{
			{"absent", "", outbox.Data{}, nil},
			{"empty", "binary", outbox.Binary(nil), int64(0)},
			{"empty slice", "binary", outbox.Binary([]byte{}), int64(0)},
			{"bytes", "binary", outbox.Binary([]byte{0, 1, 0xff}), int64(3)},
			{"json", "json", outbox.JSON([]byte(`null`)), int64(4)},
		} {
			inTx(t, db, func(tx *sql.Tx) {
				e := event("acme", tc.name)
				e.Data = tc.data
				for _, want := range []outbox.Outcome{outbox.Enqueued, outbox.AlreadyEnqueued} {
					if r, err := outbox.Enqueue(t.Context(), tx, e); err != nil || r.Outcome != want {
						t.Errorf("%s: %+v, %v", tc.name, r, err)
					}
				}
			})
			var kind string
			var length any
			err := db.QueryRow(`SELECT ifnull(data_kind, ''), length(data) FROM dovecote_events WHERE event_id = ?`, tc.name).Scan(&kind, &length)
			if err != nil || kind != tc.kind || length != tc.length {
				t.Errorf("%s: stored %q of %v bytes, %v", tc.name, kind, length, err)
			}
		}
	})
}

func TestRollbackShowsNeitherAndCommitBoth(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		if _, err := db.Exec(`CREATE TABLE app (id INTEGER PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		for _, commit := range []bool{false, true} {
			tx, err := outbox.Begin(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(`INSERT INTO app VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			if _, err := outbox.EnqueueAll(t.Context(), tx, events("acme", 3)); err != nil {
				t.Fatal(err)
			}
			if commit {
				err = tx.Commit()
			} else {
				err = tx.Rollback()
			}
			if err != nil {
				t.Fatal(err)
			}
			apps, rows := count(t, db, `SELECT count(*) FROM app`), count(t, db, `SELECT count(*) FROM dovecote_events JOIN dovecote_deliveries ON row_id = event_row_id`)
			if commit != (apps == 1 && rows == 3) || !commit && rows+apps > 0 {
				t.Errorf("commit %v: %d business rows, %d events", commit, apps, rows)
			}
		}
	})
}

func TestOneDatabaseTimeServesBothRows(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		inTx(t, db, func(tx *sql.Tx) {
			if _, err := outbox.EnqueueAll(t.Context(), tx, events("acme", 200)); err != nil {
				t.Fatal(err)
			}
		})
		if n := count(t, db, `SELECT count(*) FROM dovecote_events JOIN dovecote_deliveries ON row_id = event_row_id AND enqueued_at = available_at
			WHERE enqueued_at GLOB '????-??-??T??:??:??.???000Z' AND abs(julianday(enqueued_at) - julianday('now')) < 1.0/1440`); n != 200 {
			t.Errorf("%d of 200", n)
		}
	})
}

func TestEnqueueValidatesBeforeItWrites(t *testing.T) {
	eachDriver(t, patient, func(t *testing.T, db *sql.DB) {
		inTx(t, db, func(tx *sql.Tx) {
			big := event("acme", "big")
			big.Data = outbox.JSON([]byte(`"` + strings.Repeat("x", 66000) + `"`))
			for _, bad := range []outbox.Event{{}, big, func() outbox.Event { e := event("acme", "1"); e.Source = "a b"; return e }()} {
				var invalid *outbox.InvalidEventError
				if _, err := outbox.Enqueue(t.Context(), tx, bad); !errors.As(err, &invalid) {
					t.Error(err)
				}
				if _, err := outbox.EnqueueAll(t.Context(), tx, []outbox.Event{event("acme", "good"), bad}); !errors.As(err, &invalid) {
					t.Error(err)
				}
			}
			if _, err := outbox.Enqueue(t.Context(), tx, big, outbox.MaxSize(1<<20)); err != nil {
				t.Error(err)
			}
			if _, err := outbox.EnqueueAll(t.Context(), tx, nil); err != nil {
				t.Error(err)
			}
		})
		if n := count(t, db, `SELECT count(*) FROM dovecote_events`); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

func TestAnEventWithoutDeliveryIsNotRepaired(t *testing.T) {
	eachDriver(t, patient+"&_pragma=foreign_keys(0)", func(t *testing.T, db *sql.DB) {
		inTx(t, db, func(tx *sql.Tx) {
			if _, err := outbox.Enqueue(t.Context(), tx, full()); err != nil {
				t.Fatal(err)
			}
		})
		must(t, db, `DELETE FROM dovecote_deliveries`)
		inTx(t, db, func(tx *sql.Tx) {
			var mismatch *outbox.MigrationMismatchError
			if _, err := outbox.Enqueue(t.Context(), tx, full()); !errors.As(err, &mismatch) || !strings.Contains(err.Error(), "row 1") {
				t.Error(err)
			}
		})
		if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries`); n != 0 {
			t.Error("repaired")
		}
	})
}

func TestADeliveryThatCannotBeWrittenTakesItsEventBack(t *testing.T) {
	eachDriver(t, patient+"&_pragma=foreign_keys(0)", func(t *testing.T, db *sql.DB) {
		must(t, db, `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state) VALUES (1, 'stray', 'pending')`)
		inTx(t, db, func(tx *sql.Tx) {
			_, err := outbox.Enqueue(t.Context(), tx, full())
			if err == nil {
				t.Error("no error")
			}
			var named *outbox.SQLError
			if !errors.As(err, &named) {
				t.Errorf("%v", err)
			}
		})
		if n := count(t, db, `SELECT count(*) FROM dovecote_events`); n != 0 {
			t.Error("an orphan was committed")
		}
	})
}

func TestADeferredTransactionThatWasOvertaken(t *testing.T) {
	eachDriver(t, patient+"&_txlock=deferred", func(t *testing.T, db *sql.DB) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var n int
		if err := tx.QueryRow(`SELECT count(*) FROM dovecote_events`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		inTx(t, db, func(tx *sql.Tx) {
			if _, err := outbox.Enqueue(t.Context(), tx, event("acme", "overtakes")); err != nil {
				t.Fatal(err)
			}
		})
		for _, enqueue := range []func() error{
			func() error { _, err := outbox.Enqueue(t.Context(), tx, full()); return err },
			func() error { _, err := outbox.EnqueueAll(t.Context(), tx, []outbox.Event{full()}); return err },
		} {
			err = enqueue()
			var named *outbox.SQLError
			if !errors.Is(err, outbox.ErrBusyUpgrade) || !errors.As(err, &named) || outbox.FaultOf(err) != outbox.FaultBusy {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), "BEGIN IMMEDIATE") {
				t.Errorf("%q does not say what to do", err)
			}
		}
	})
}

func TestBeginHoldsTheWriterSlot(t *testing.T) {
	for _, mode := range []string{"WAL", "DELETE"} {
		for _, lock := range []string{"deferred", "immediate"} {
			t.Run(mode+" "+lock, func(t *testing.T) {
				eachDriver(t, "_pragma=busy_timeout(50)&_txlock="+lock, func(t *testing.T, db *sql.DB) {
					var got string
					if err := db.QueryRow(`PRAGMA journal_mode = ` + mode).Scan(&got); err != nil || !strings.EqualFold(got, mode) {
						t.Fatal(got, err)
					}
					tx, err := outbox.Begin(t.Context(), db)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := outbox.Begin(t.Context(), db); !errors.Is(err, outbox.ErrBusyExhausted) || outbox.FaultOf(err) != outbox.FaultBusy {
						t.Errorf("a second one: %v", err)
					}
					if _, err := outbox.Enqueue(t.Context(), tx, full()); err != nil {
						t.Error(err)
					}
					if err := tx.Commit(); err != nil {
						t.Error(err)
					}
					inTx(t, db, func(*sql.Tx) {})
				})
			})
		}
	}
}

func TestBeginWaitsAsLongAsTheConnectionDoes(t *testing.T) {
	eachDriver(t, "_pragma=busy_timeout(10000)&_txlock=deferred", func(t *testing.T, db *sql.DB) {
		tx, err := outbox.Begin(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		begun := make(chan error, 1)
		go func() {
			second, err := outbox.Begin(context.Background(), db)
			if err == nil {
				err = second.Rollback()
			}
			begun <- err
		}()
		select {
		case err := <-begun:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(30 * time.Millisecond):
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-begun; err != nil {
			t.Error(err)
		}
	})
}

func TestBeginWithoutAnOutbox(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := outbox.Begin(t.Context(), db); err == nil || !strings.Contains(err.Error(), "dovecote_schema") {
		t.Error(err)
	}
}

// One identity enqueued by many at once, with equal and with different content,
// ends in one of the three outcomes for each.
func TestConcurrentEnqueueOfOneIdentity(t *testing.T) {
	eachDriver(t, "_pragma=busy_timeout(20000)", func(t *testing.T, db *sql.DB) {
		for round := range 10 {
			const writers = 8
			id := fmt.Sprintf("round-%d", round)
			var start, done sync.WaitGroup
			start.Add(1)
			results := make([]string, writers)
			for i := range writers {
				done.Go(func() {
					start.Wait()
					results[i] = enqueueOnce(db, id, i%2)
				})
			}
			start.Done()
			done.Wait()
			tally := map[string]int{}
			for _, r := range results {
				tally[r]++
			}
			if tally["enqueued"] != 1 || tally["already"] != writers/2-1 || tally["conflict"] != writers/2 {
				t.Fatalf("%v", tally)
			}
		}
	})
}

func enqueueOnce(db *sql.DB, id string, variant int) string {
	tx, err := outbox.Begin(context.Background(), db)
	if err != nil {
		return err.Error()
	}
	defer tx.Rollback()
	e := event("acme", id)
	e.Subject = fmt.Sprint("variant ", variant)
	r, err := outbox.Enqueue(context.Background(), tx, e)
	if errors.As(err, new(*outbox.IdempotencyConflictError)) {
		return "conflict"
	}
	if err == nil {
		err = tx.Commit()
	}
	switch {
	case err != nil:
		return err.Error()
	case r.Outcome == outbox.AlreadyEnqueued:
		return "already"
	}
	return "enqueued"
}

// A context that ends between the event and its delivery keeps neither from
// being whole.
func TestAContextThatEndsBetweenEventAndDelivery(t *testing.T) {
	path := outboxtest.NewFile(t)
	var faults outboxtest.Faults
	c, err := faults.Connector("file:" + path + "?" + patient)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	defer db.Close()
	inTx(t, db, func(tx *sql.Tx) {
		ctx, cancel := context.WithCancel(t.Context())
		faults.Before(func(query string, _ func(string) error) {
			if strings.Contains(query, "INSERT INTO dovecote_deliveries") {
				cancel()
			}
		})
		if r, err := outbox.Enqueue(ctx, tx, full()); err != nil || r.Outcome != outbox.Enqueued {
			t.Errorf("%+v, %v", r, err)
		}
		faults.Before(nil)
		if ctx.Err() == nil {
			t.Error("not reached")
		}
		if _, err := outbox.Enqueue(ctx, tx, event("acme", "late")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if n := count(t, db, `SELECT count(*) FROM dovecote_events JOIN dovecote_deliveries ON row_id = event_row_id`); n != 1 {
		t.Errorf("%d events", n)
	}
}
