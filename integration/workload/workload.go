// Package workload is an application with an outbox: it commits orders to its
// own table together with their events, and rolls some transactions back.
package workload

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/outbox-relay/relay/outbox"
)

// Undone ends the id of every order whose transaction is rolled back, so that a
// reader of the stream can tell what should never have arrived.
const Undone = "-undone"

// Options of a run. The zero value of an optional field means its default.
type Options struct {
	DB            string        // path of the database file
	Name          string        // first part of every id; producers that share a file need different ones
	Orders        int           // orders to commit; 0: until ctx ends
	PerTx         int           // orders in one transaction, default 1
	RollbackEvery int           // every nth transaction is rolled back; 0: none
	Every         time.Duration // time between two transactions; 0: flat out
	Tenants       []string      // default "acme"
	Streams       []string      // default "orders"
	Payload       int           // bytes of filler in each body
	Seed          uint64
}

// Report says what a run did.
type Report struct {
	Committed  int `json:"committed"`   // orders
	RolledBack int `json:"rolled_back"` // orders
	Busy       int `json:"busy"`        // transactions begun again because the file stayed locked
}

const tablesSQL = `
CREATE TABLE IF NOT EXISTS shop_orders (
  id          TEXT PRIMARY KEY,
  tenant      TEXT NOT NULL,
  stream      TEXT NOT NULL,
  source      TEXT NOT NULL,
  type        TEXT NOT NULL,
  body_sha256 TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS shop_notes (id INTEGER PRIMARY KEY, text TEXT)`

// Prepare creates the application's tables in an existing outbox file.
func Prepare(ctx context.Context, path string) error {
	db, err := Open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, tablesSQL)
	return err
}

// Open opens path as a careful application does: no file is created, foreign
// keys are on, a locked file is waited for, and commits are durable.
func Open(path string) (*sql.DB, error) {
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	db, err := sql.Open("sqlite", "file:"+escaped+
		"?mode=rw&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// Run commits orders until o.Orders are in or ctx ends; the end of ctx is no error.
func Run(ctx context.Context, o Options) (Report, error) {
	db, err := Open(o.DB)
	if err != nil {
		return Report{}, err
	}
	defer db.Close()
	s := &shop{o: o, db: db, rng: rand.New(rand.NewPCG(o.Seed, 1))}
	if s.o.PerTx == 0 {
		s.o.PerTx = 1
	}
	if len(s.o.Tenants) == 0 {
		s.o.Tenants = []string{"acme"}
	}
	if len(s.o.Streams) == 0 {
		s.o.Streams = []string{"orders"}
	}
	err = s.run(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	return s.report, err
}

type shop struct {
	o      Options
	db     *sql.DB
	rng    *rand.Rand
	next   int // number of the next order
	report Report
}

func (s *shop) run(ctx context.Context) error {
	for tx := 1; s.o.Orders == 0 || s.report.Committed < s.o.Orders; tx++ {
		undo := s.o.RollbackEvery > 0 && tx%s.o.RollbackEvery == 0
		orders := s.orders(undo)
		err := s.commit(ctx, orders, undo)
		for ; isBusy(err); err = s.commit(ctx, orders, undo) {
			s.report.Busy++
		}
		if err != nil {
			return err
		}
		if undo {
			s.report.RolledBack += len(orders)
		} else {
			s.report.Committed += len(orders)
		}
		if err := pause(ctx, s.o.Every); err != nil {
			return err
		}
	}
	return nil
}

// orders makes up the orders of one transaction.
func (s *shop) orders(undo bool) []outbox.Event {
	n := s.o.PerTx
	if s.o.Orders > 0 {
		n = min(n, s.o.Orders-s.report.Committed)
	}
	events := make([]outbox.Event, n)
	for i := range events {
		id := fmt.Sprintf("%s-%06d", s.o.Name, s.next)
		s.next++
		if undo {
			id += Undone
		}
		events[i] = s.order(id)
	}
	return events
}

func (s *shop) order(id string) outbox.Event {
	body, _ := json.Marshal(map[string]any{ // strings and numbers always encode
		"order": id, "cents": s.rng.IntN(100_000), "note": strings.Repeat("x", s.o.Payload),
	})
	return outbox.Event{
		Tenant:      s.o.Tenants[s.rng.IntN(len(s.o.Tenants))],
		Stream:      s.o.Streams[s.rng.IntN(len(s.o.Streams))],
		ID:          id,
		Source:      "/shop/" + s.o.Name,
		Type:        "com.example.order.placed",
		Subject:     "order " + id,
		ContentType: "application/json",
		Data:        outbox.JSON(body),
	}
}

const insertOrderSQL = `
INSERT INTO shop_orders (id, tenant, stream, source, type, body_sha256) VALUES (?, ?, ?, ?, ?, ?)`

func (s *shop) commit(ctx context.Context, orders []outbox.Event, undo bool) error {
	tx, err := outbox.Begin(ctx, s.db)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	for _, e := range orders {
		sum := sha256.Sum256(e.Data.Bytes())
		_, err := tx.ExecContext(ctx, insertOrderSQL,
			e.ID, e.Tenant, e.Stream, e.Source, e.Type, hex.EncodeToString(sum[:]))
		if err != nil {
			return err
		}
		if _, err := outbox.Enqueue(ctx, tx, e); err != nil {
			return err
		}
	}
	if undo {
		return tx.Rollback()
	}
	return tx.Commit()
}

func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.Is(err, outbox.ErrBusyExhausted) || errors.As(err, &e) && e.Code()&0xff == 5
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
