//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// shapeRows is a claim of the measurements, shapeRounds how often it is made,
// selections how often rows are selected, all of them or a few.
const (
	shapeRows   = 256
	shapeRounds = 40
	selections  = 100
	few         = 8
)

// costs are in ms. Each is the lowest of many, for what disturbs a measurement only adds
// to it.
type costs struct{ selection, claim, settle float64 }

// measureShapes takes the times of a selection, a claim and a settlement of 256 rows
// beside many others, without and with statistics.
func measureShapes(ctx context.Context, b *bench) error {
	var all [][2]costs
	for _, shape := range tableShapes {
		n := 10_000
		if shape.large {
			n = b.shape
		}
		var cost [2]costs
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
				cost[i], err = shapeCosts(ctx, path, db)
			}
		}
		if err := errors.Join(err, db.Close()); err != nil {
			return err
		}
		name := shape.name
		if shape.large {
			name = fmt.Sprintf("%s (%d)", name, n)
		}
		b.record("claim 256, "+name, "ms", "", cost[0].claim)
		b.record("claim 256, "+name+", analyzed", "ms", "", cost[1].claim)
		all = append(all, cost)
	}
	selected := spread(all, func(c costs) float64 { return c.selection })
	claims := spread(all, func(c costs) float64 { return c.claim })
	b.record("claim 256: slowest / fastest shape", "", "≤ 2", claims[1]/claims[0])
	b.record("selection of 256 candidates, slowest shape", "ms", "≤ 0.5", selected[1])
	b.record("selection of 256 candidates: slowest / fastest shape", "", "≤ 2", selected[1]/selected[0])
	b.record("settle 256", "ms", "", all[0][0].settle)
	worst := 0.0
	for _, c := range all {
		worst = max(worst, c[1].settle/c[0].settle)
	}
	b.record("settle 256: analyzed / not, worst shape", "", "≤ 1.5", worst)
	return nil
}

// spread is the lowest and the highest of a cost.
func spread(all [][2]costs, of func(costs) float64) (lowHigh [2]float64) {
	lowHigh = [2]float64{of(all[0][0]), of(all[0][0])}
	for _, pair := range all {
		for _, c := range pair {
			lowHigh[0], lowHigh[1] = min(lowHigh[0], of(c)), max(lowHigh[1], of(c))
		}
	}
	return lowHigh
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

// shapeCosts claims rows of 1 KiB that are due before all others.
func shapeCosts(ctx context.Context, path string, db *sql.DB) (c costs, err error) {
	s, err := outbox.Open(ctx, path, outbox.Options{})
	if err != nil {
		return c, err
	}
	defer s.Close()
	h := s.AllTenants()
	if c.selection, err = selectionCost(ctx, h, db); err != nil {
		return c, err
	}
	for round := range shapeRounds {
		if err := enqueueFirst(ctx, db, shapeRows); err != nil {
			return c, err
		}
		began := time.Now()
		claimed, err := h.Claim(ctx, "bench", time.Minute, shapeRows)
		claim := millis(began)
		if err != nil {
			return c, err
		}
		if len(claimed) != shapeRows {
			return c, fmt.Errorf("%d rows claimed", len(claimed))
		}
		began = time.Now()
		if err := acknowledge(ctx, h, claimed); err != nil {
			return c, err
		}
		settle := millis(began)
		if round == 0 {
			c.claim, c.settle = claim, settle
		}
		c.claim, c.settle = min(c.claim, claim), min(c.settle, settle)
	}
	return c, nil
}

// selectionCost is what a claim costs that looks for 256 candidates and then has room for
// the first of them only, less what one costs that looks for a few.
func selectionCost(ctx context.Context, h *outbox.Handle, db *sql.DB) (float64, error) {
	if err := enqueueFirst(ctx, db, 2*shapeRows); err != nil {
		return 0, err
	}
	var lowest [2]float64
	for round := range 2 * selections {
		i := round % 2 // by turns, so that a slow spell of the machine meets both
		request := outbox.ClaimRequest{Worker: "bench", Lease: time.Minute, Limit: []int{few, shapeRows}[i], MaxBytes: 1}
		began := time.Now()
		x, err := h.Exchange(ctx, nil, request)
		took := millis(began)
		if err != nil || x.ClaimErr != nil || len(x.Claimed) != 1 {
			return 0, fmt.Errorf("%d rows claimed: %w, %w", len(x.Claimed), err, x.ClaimErr)
		}
		if err := acknowledge(ctx, h, x.Claimed); err != nil {
			return 0, err
		}
		if lowest[i] == 0 || took < lowest[i] {
			lowest[i] = took
		}
	}
	rest, err := h.Claim(ctx, "bench", time.Minute, 2*shapeRows-2*selections)
	if err != nil {
		return 0, err
	}
	return (lowest[1] - lowest[0]) * shapeRows / (shapeRows - few), acknowledge(ctx, h, rest)
}

// enqueueFirst adds n rows that are due before all others.
func enqueueFirst(ctx context.Context, db *sql.DB, n int) error {
	list := make([]outbox.Event, n)
	for i := range list {
		list[i] = event(fmt.Sprintf("first-%d-%d", time.Now().UnixNano(), i), payload(eventSize))
	}
	return inTx(ctx, db, func(tx *sql.Tx) error {
		if _, err := outbox.EnqueueAll(ctx, tx, list); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE dovecote_deliveries SET available_at = `+longAgo+`
			WHERE event_row_id > (SELECT max(event_row_id) FROM dovecote_deliveries) - ?`, n)
		return err
	})
}

func acknowledge(ctx context.Context, h *outbox.Handle, claimed []outbox.Claimed) error {
	batch := make([]outbox.Settlement, len(claimed))
	for i := range claimed {
		batch[i] = outbox.Settlement{Row: claimed[i].Row, Token: claimed[i].Token, Action: outbox.Ack}
	}
	_, err := h.Settle(ctx, batch)
	return err
}

func millis(since time.Time) float64 { return float64(time.Since(since)) / 1e6 }

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
