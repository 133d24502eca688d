//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// tableShape is what a table holds beside the rows that are claimed.
type tableShape struct {
	name, state, columns, available string
	large                           bool
}

const (
	longAgo   = `'2026-01-01T00:00:00.000000Z'`
	farFuture = `'2099-01-01T00:00:00.000000Z'`
)

var tableShapes = []tableShape{
	{name: "10,000 delivered", state: "delivered", columns: longAgo, available: longAgo},
	{name: "many delivered", state: "delivered", columns: longAgo, available: longAgo, large: true},
	{name: "many due", state: "pending", columns: "NULL", available: `'2026-01-02T00:00:00.000000Z'`, large: true},
	{name: "many not yet due", state: "pending", columns: "NULL", available: farFuture, large: true},
}

// shapeRows is a claim of the measurements, shapeRounds how often it is made.
const (
	shapeRows   = 256
	shapeRounds = 20
)

// measureShapes takes the times of a claim and a settlement of 256 rows beside
// many others, without and with statistics.
func measureShapes(ctx context.Context, b *bench) error {
	var claims, settles [][2]float64
	for _, shape := range tableShapes {
		n := 10_000
		if shape.large {
			n = b.shape
		}
		var claim, settle [2]float64
		path, err := b.newOutbox(ctx)
		if err != nil {
			return err
		}
		db, err := openApp(path)
		if err != nil {
			return err
		}
		err = addShape(ctx, db, shape, n)
		for i := range 2 {
			if err == nil && i == 1 {
				_, err = db.ExecContext(ctx, `ANALYZE`)
			}
			if err == nil {
				claim[i], settle[i], err = claimAndSettle256(ctx, path, db)
			}
		}
		if err := errors.Join(err, db.Close()); err != nil {
			return err
		}
		name := shape.name
		if shape.large {
			name = fmt.Sprintf("%s (%d)", name, n)
		}
		b.record("claim 256, "+name, "ms of CPU", "", claim[0])
		b.record("claim 256, "+name+", analyzed", "ms of CPU", "", claim[1])
		claims, settles = append(claims, claim), append(settles, settle)
	}
	low, high, analyzed := claims[0][0], claims[0][0], 0.0
	for i := range claims {
		low, high = min(low, claims[i][0], claims[i][1]), max(high, claims[i][0], claims[i][1])
		analyzed = max(analyzed, settles[i][1]/settles[i][0])
	}
	b.record("claim 256: slowest / fastest shape", "", "≤ 2", high/low)
	b.record("settle 256", "ms of CPU", "", settles[0][0])
	b.record("settle 256: analyzed / not, worst shape", "", "≤ 1.5", analyzed)
	return nil
}

func addShape(ctx context.Context, db *sql.DB, s tableShape, n int) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO dovecote_events
			(tenant_id, stream, specversion, event_id, source, event_type, datacontenttype, data_kind, data)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			SELECT 'acme', 'orders', '1.0', printf('shape-%09d', i), '/orders/service', 'com.example.order.placed',
				'application/json', 'json', CAST('{}' AS BLOB) FROM n`, n)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO dovecote_deliveries
				(event_row_id, tenant_id, state, available_at, delivered_at)
				SELECT row_id, tenant_id, ?, `+s.available+`, `+s.columns+` FROM dovecote_events`, s.state)
		}
		return err
	})
}

// claimAndSettle256 returns medians in ms of CPU, which is all that these take, and
// which neighbours on the machine disturb least. The rows that are claimed have 1 KiB
// and are due before all others.
func claimAndSettle256(ctx context.Context, path string, db *sql.DB) (claim, settle float64, err error) {
	s, err := outbox.Open(ctx, path, outbox.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	h := s.AllTenants()
	var claims, settles []float64
	for round := range shapeRounds {
		list := make([]outbox.Event, shapeRows)
		for i := range list {
			list[i] = event(fmt.Sprintf("round-%d-%d-%d", time.Now().UnixNano(), round, i), payload(eventSize))
		}
		if err := inTx(ctx, db, func(tx *sql.Tx) error {
			if _, err := outbox.EnqueueAll(ctx, tx, list); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, `UPDATE dovecote_deliveries SET available_at = `+longAgo+`
				WHERE event_row_id > (SELECT max(event_row_id) FROM dovecote_deliveries) - ?`, shapeRows)
			return err
		}); err != nil {
			return 0, 0, err
		}
		began := cpu(os.Getpid())
		claimed, err := h.Claim(ctx, "bench", time.Minute, shapeRows)
		if err != nil {
			return 0, 0, err
		}
		claims = append(claims, float64(cpu(os.Getpid())-began)/1e6)
		if len(claimed) != shapeRows {
			return 0, 0, fmt.Errorf("%d rows claimed", len(claimed))
		}
		batch := make([]outbox.Settlement, len(claimed))
		for i := range claimed {
			batch[i] = outbox.Settlement{Row: claimed[i].Row, Token: claimed[i].Token, Action: outbox.Ack}
		}
		began = cpu(os.Getpid())
		if _, err := h.Settle(ctx, batch); err != nil {
			return 0, 0, err
		}
		settles = append(settles, float64(cpu(os.Getpid())-began)/1e6)
	}
	return quantile(claims, 0.5), quantile(settles, 0.5), nil
}

// measurePrune takes how long a prune keeps the writer slot from others.
func measurePrune(ctx context.Context, b *bench) error {
	path, err := b.newOutbox(ctx)
	if err != nil {
		return err
	}
	db, err := openApp(path)
	if err != nil {
		return err
	}
	if err := errors.Join(addShape(ctx, db, tableShapes[0], b.rows), db.Close()); err != nil {
		return err
	}
	s, err := outbox.Open(ctx, path, outbox.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	other, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(0)")
	if err != nil {
		return err
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	ctx, stop := context.WithTimeout(ctx, b.span)
	defer stop()
	pruned := make(chan error, 1)
	go func() {
		_, err := s.AllTenants().Prune(ctx, outbox.PruneRequest{Delivered: time.Hour, Batch: 500})
		if ctx.Err() != nil {
			err = nil
		}
		pruned <- err
	}()
	busy := busySpells(ctx, other, pruned)
	b.record("writer slot held by a prune of 500 rows, p99", "ms", "≤ 15", quantile(busy.spells, 0.99))
	return busy.err
}

type spells struct {
	spells []float64 // ms
	err    error
}

// busySpells measures how long the writer slot is taken at a time, as another
// connection sees it, until done.
func busySpells(ctx context.Context, db *sql.DB, done <-chan error) spells {
	var s spells
	var since time.Time
	for {
		select {
		case s.err = <-done:
			return s
		default:
		}
		_, err := db.ExecContext(context.WithoutCancel(ctx), `BEGIN IMMEDIATE; ROLLBACK`)
		switch now := time.Now(); {
		case err != nil && since.IsZero():
			since = now
		case err == nil && !since.IsZero():
			s.spells = append(s.spells, float64(now.Sub(since))/1e6)
			since = time.Time{}
		}
		time.Sleep(100 * time.Microsecond)
	}
}
