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

const (
	bareEventSQL = `INSERT INTO dovecote_events (tenant_id, stream, specversion, event_id, source, event_type,
	subject, occurred_at, datacontenttype, data_kind, data) VALUES (?, ?, '1.0', ?, ?, ?, ?, ?, ?, 'json', ?)`
	bareDeliverySQL = `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state) VALUES (?, ?, 'pending')`
)

func bareArgs(e *outbox.Event) []any {
	return []any{e.Tenant, e.Stream, e.ID, e.Source, e.Type, e.Subject, "2026-01-02T03:04:05.000000Z", e.ContentType, e.Data.Bytes()}
}

type execer func(ctx context.Context, args ...any) (sql.Result, error)

func bareInserts(ctx context.Context, event, delivery execer, list []outbox.Event) error {
	for i := range list {
		r, err := event(ctx, bareArgs(&list[i])...)
		if err != nil {
			return err
		}
		row, err := r.LastInsertId()
		if err != nil {
			return err
		}
		if _, err := delivery(ctx, row, list[i].Tenant); err != nil {
			return err
		}
	}
	return nil
}

func bare(ctx context.Context, tx *sql.Tx, list []outbox.Event) error {
	exec := func(query string) execer {
		return func(ctx context.Context, args ...any) (sql.Result, error) { return tx.ExecContext(ctx, query, args...) }
	}
	return bareInserts(ctx, exec(bareEventSQL), exec(bareDeliverySQL), list)
}

func barePrepared(ctx context.Context, tx *sql.Tx, list []outbox.Event) error {
	event, err := tx.PrepareContext(ctx, bareEventSQL)
	if err != nil {
		return err
	}
	delivery, err := tx.PrepareContext(ctx, bareDeliverySQL)
	if err != nil {
		return err
	}
	return bareInserts(ctx, event.ExecContext, delivery.ExecContext, list)
}

func enqueue(ctx context.Context, tx *sql.Tx, list []outbox.Event) error {
	for i := range list {
		if _, err := outbox.Enqueue(ctx, tx, list[i]); err != nil {
			return err
		}
	}
	return nil
}

func enqueueAll(ctx context.Context, tx *sql.Tx, list []outbox.Event) error {
	_, err := outbox.EnqueueAll(ctx, tx, list)
	return err
}

// enqueueShapes are ways to write events, each beside the two bare inserts in the
// same shape.
var enqueueShapes = []struct {
	name          string
	perTx         int
	bare, library func(context.Context, *sql.Tx, []outbox.Event) error
}{
	{"Enqueue, 1 in a transaction", 1, bare, enqueue},
	{"Enqueue, 100 in a transaction", 100, bare, enqueue},
	{"EnqueueAll, 100 in a transaction", 100, barePrepared, enqueueAll},
}

// enqueueRounds alternate between the two, so that a disturbance hits both.
const enqueueRounds = 10

func measureEnqueue(ctx context.Context, b *bench) error {
	for _, shape := range enqueueShapes {
		var took [2]time.Duration
		var files [2]*sql.DB
		for i := range files {
			path, err := b.newOutbox(ctx)
			if err != nil {
				return err
			}
			if files[i], err = openApp(path); err != nil {
				return err
			}
			defer files[i].Close()
		}
		n := b.enqueues / enqueueRounds
		for round := range enqueueRounds {
			for i, write := range []func(context.Context, *sql.Tx, []outbox.Event) error{shape.bare, shape.library} {
				d, err := writeEvents(ctx, files[i], round*n, n, shape.perTx, write)
				if err != nil {
					return err
				}
				took[i] += d
			}
		}
		events := float64(n * enqueueRounds)
		b.record(shape.name, "µs per event", "", took[1].Seconds()*1e6/events)
		b.record("bare inserts / "+shape.name, "", "≥ 0.8", took[0].Seconds()/took[1].Seconds())
	}
	return nil
}

func writeEvents(ctx context.Context, db *sql.DB, first, n, perTx int, write func(context.Context, *sql.Tx, []outbox.Event) error) (time.Duration, error) {
	data := payload(eventSize)
	list := make([]outbox.Event, n)
	for i := range list {
		list[i] = event(fmt.Sprintf("enqueue-%09d", first+i), data)
	}
	began := time.Now()
	for len(list) > 0 {
		k := min(perTx, len(list))
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return 0, err
		}
		if err := write(ctx, tx, list[:k]); err != nil {
			return 0, errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return 0, err
		}
		list = list[k:]
	}
	return time.Since(began), nil
}
