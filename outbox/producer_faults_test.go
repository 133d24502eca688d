package outbox_test

import (
	"database/sql"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// producerCases are what a caller's transaction does, on a file with one event.
var producerCases = map[string]func(t *testing.T, tx *sql.Tx) error{
	"enqueue": func(t *testing.T, tx *sql.Tx) error {
		_, err := outbox.Enqueue(t.Context(), tx, event("acme", "new"))
		return err
	},
	"replay": func(t *testing.T, tx *sql.Tx) error {
		_, err := outbox.Enqueue(t.Context(), tx, event("acme", "acme-1"))
		return err
	},
	"enqueue many": func(t *testing.T, tx *sql.Tx) error {
		_, err := outbox.EnqueueAll(t.Context(), tx, append(events("acme", 3), events("zenith", 2)...))
		return err
	},
	"import": func(t *testing.T, tx *sql.Tx) error {
		_, _, err := outbox.Import(t.Context(), tx, outbox.ImportEvent{Event: event("acme", "new"), DeliveredAt: noon})
		return err
	},
	"import again": func(t *testing.T, tx *sql.Tx) error {
		_, _, err := outbox.Import(t.Context(), tx, outbox.ImportEvent{Event: event("acme", "acme-1")})
		return err
	},
	"finalize": func(t *testing.T, tx *sql.Tx) error { return outbox.Finalize(t.Context(), tx, "acme", 1, noon) },
}

// Each step of a producer fails once. A caller that commits in spite of the error
// still leaves no event without its delivery: the file is checked at the end.
func TestEachStepOfAProducerFailsOnce(t *testing.T) {
	for name, run := range producerCases {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after %v", name, after), func(t *testing.T) {
				for n := 1; !failProducer(t, run, n, after); n++ {
				}
			})
		}
	}
}

// faultyProducer is a producer's connection and transaction, whose next steps can fail.
func faultyProducer(t *testing.T, path string, faults *outboxtest.Faults) (*sql.DB, *sql.Tx) {
	t.Helper()
	c, err := faults.Connector("file:" + path + "?mode=rw&_pragma=foreign_keys(1)&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	tx, err := outbox.Begin(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return db, tx
}

// failProducer fails step n, and reports whether the case has fewer.
func failProducer(t *testing.T, run func(t *testing.T, tx *sql.Tx) error, n int, after bool) bool {
	t.Helper()
	path := outboxtest.NewFile(t)
	outboxtest.Enqueue(t, outboxtest.Producer(t, path), event("acme", "acme-1"))
	var faults outboxtest.Faults
	db, tx := faultyProducer(t, path, &faults)
	defer db.Close()
	if after {
		faults.FailAfter(n, outboxtest.IOError)
	} else {
		faults.FailAt(n, outboxtest.IOError)
	}
	err := run(t, tx)
	reached := faults.Disarm() >= n
	if reached != (err != nil) || reached && outbox.FaultOf(err) != outbox.FaultIO {
		t.Errorf("step %d, after %v: reached %v, %v", n, after, reached, err)
	}
	// A statement that was taken and reports an error all the same is nothing that
	// SQLite does: then the caller rolls back, as it should after every error.
	end := tx.Commit
	if after && err != nil {
		end = tx.Rollback
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	outboxtest.Check(t, path)
	return !reached
}

// Each step of a read fails once: the error is the read's, and the next one works.
func TestEachStepOfReadingFailsOnce(t *testing.T) {
	reads := map[string]func(t *testing.T, h *outbox.Handle) error{
		"page": func(t *testing.T, h *outbox.Handle) error { _, err := h.Page(t.Context(), 0, 10); return err },
		"get":  func(t *testing.T, h *outbox.Handle) error { _, err := h.Get(t.Context(), 1); return err },
		"list": func(t *testing.T, h *outbox.Handle) error {
			_, err := h.List(t.Context(), outbox.Filter{State: outbox.Pending}, 10)
			return err
		},
		"select": func(t *testing.T, h *outbox.Handle) error {
			_, err := h.SelectRows(t.Context(), outbox.Filter{}, 10)
			return err
		},
		"stats":   func(t *testing.T, h *outbox.Handle) error { _, err := h.Stats(t.Context()); return err },
		"counts":  func(t *testing.T, h *outbox.Handle) error { _, err := h.Backlog(t.Context()); return err },
		"check":   func(t *testing.T, h *outbox.Handle) error { _, err := h.Check(t.Context(), 0); return err },
		"orphans": func(t *testing.T, h *outbox.Handle) error { _, err := h.Orphans(t.Context(), 0, 10); return err },
		"snapshot": func(t *testing.T, h *outbox.Handle) error {
			s, err := h.Snapshot(t.Context(), outbox.SnapshotOptions{PageSize: 2})
			if err != nil {
				return err
			}
			defer s.Close()
			for err == nil {
				_, err = s.Next(t.Context())
			}
			if err == io.EOF {
				return nil
			}
			return err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			var faults outboxtest.Faults
			s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
			outboxtest.Enqueue(t, outboxtest.Producer(t, s.Path()), events("acme", 5)...)
			failed := 0
			for n := 1; ; n++ {
				faults.FailAt(n, outboxtest.IOError)
				err := read(t, s.AllTenants())
				log := faults.Log()
				if faults.Disarm() < n {
					if err != nil {
						t.Error(err)
					}
					break
				}
				if err != nil {
					failed++
				}
				// What has been read is good, however its transaction ends.
				ending := strings.Contains(strings.Split(log, "\n")[n-1], "ROLLBACK")
				if (err != nil) == ending || err != nil && outbox.FaultOf(err) != outbox.FaultIO {
					t.Errorf("step %d: %v, of\n%s", n, err, log)
				}
			}
			if err := read(t, s.AllTenants()); err != nil || failed < 3 {
				t.Errorf("%d steps failed; then %v", failed, err)
			}
		})
	}
}
