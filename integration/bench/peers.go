//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"maragu.dev/goqite"

	"github.com/outbox-relay/relay/outbox"
)

// peerWorkers publish at the same time, each one message and its
// acknowledgement at a time.
const peerWorkers = 64

// measurePeers drains the same events to the same stream with other queues over
// SQLite, which publish a message for each job.
func measurePeers(ctx context.Context, b *bench) error {
	for _, p := range []struct {
		name, target string
		run          func(context.Context, *bench, *broker) (time.Duration, error)
	}{
		{"river", "≥ 8", drainRiver},
		{"goqite", "≥ 8", drainGoqite},
		{"row at a time", "", drainRowByRow},
	} {
		k, err := b.startBroker(ctx)
		if err != nil {
			return err
		}
		took, err := p.run(ctx, b, k)
		k.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		rate := float64(b.peerRows) / took.Seconds()
		b.record("peer: "+p.name, "rows/s", "", rate)
		if b.drained > 0 {
			b.record("drain / "+p.name, "", p.target, b.drained/rate)
		}
	}
	return nil
}

// publish sends one event and waits for its PubAck.
func (k *broker) publish(ctx context.Context, id string, data []byte) error {
	_, err := k.js.PublishMsg(ctx, &nats.Msg{
		Subject: "ev.acme.orders", Data: data,
		Header: nats.Header{"Nats-Msg-Id": {id}, "ce-id": {id}, "ce-source": {"/orders/service"}, "ce-type": {"com.example.order.placed"}},
	})
	return err
}

type riverEvent struct {
	ID   string
	Data string
}

func (riverEvent) Kind() string { return "event" }

type riverWorker struct {
	river.WorkerDefaults[riverEvent]
	broker *broker
}

func (w *riverWorker) Work(ctx context.Context, j *river.Job[riverEvent]) error {
	return w.broker.publish(ctx, j.Args.ID, []byte(j.Args.Data))
}

func drainRiver(ctx context.Context, b *bench, k *broker) (time.Duration, error) {
	db, err := openApp(b.path("river.db"))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	driver := riversqlite.New(db)
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{broker: k})
	client, err := river.NewClient(driver, &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}}, Workers: workers, Logger: quiet,
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Millisecond,
	})
	if err != nil {
		return 0, err
	}
	data := strings.Repeat("x", eventSize)
	for first := 0; first < b.peerRows; first += 500 {
		var jobs []river.InsertManyParams
		for i := first; i < min(first+500, b.peerRows); i++ {
			jobs = append(jobs, river.InsertManyParams{Args: riverEvent{strconv.Itoa(i), data}})
		}
		if _, err := client.InsertMany(ctx, jobs); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	for left := 1; left > 0 && err == nil; {
		if err = sleep(ctx, 20*time.Millisecond); err == nil {
			err = db.QueryRowContext(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&left)
		}
	}
	took := time.Since(began)
	return took, errors.Join(err, client.Stop(ctx))
}

// goqiteSchema is part of the module, outside of its Go code.
func goqiteSchema(ctx context.Context) (string, error) {
	dir, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "maragu.dev/goqite")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), "schema_sqlite.sql"))
	return string(text), err
}

func drainGoqite(ctx context.Context, b *bench, k *broker) (time.Duration, error) {
	schema, err := goqiteSchema(ctx)
	if err != nil {
		return 0, err
	}
	db, err := openApp(b.path("goqite.db"))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return 0, err
	}
	q := goqite.New(goqite.NewOpts{DB: db, Name: "events", Timeout: time.Minute})
	if err := inTx(ctx, db, func(tx *sql.Tx) error {
		for range b.peerRows {
			if err := q.SendTx(ctx, tx, goqite.Message{Body: payload(eventSize)}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return 0, err
	}
	began := time.Now()
	errs := make([]error, peerWorkers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil {
				var m *goqite.Message
				if m, errs[i] = q.Receive(ctx); m == nil || errs[i] != nil {
					return
				}
				if errs[i] = k.publish(ctx, string(m.ID), m.Body); errs[i] == nil {
					errs[i] = q.Delete(ctx, m.ID)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began), errors.Join(errs...)
}

func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// drainRowByRow is the simplest relay: claim one, publish it, acknowledge it.
func drainRowByRow(ctx context.Context, b *bench, k *broker) (time.Duration, error) {
	path, err := b.filled(ctx, b.peerRows, eventSize)
	if err != nil {
		return 0, err
	}
	s, err := outbox.Open(ctx, path, outbox.Options{})
	if err != nil {
		return 0, err
	}
	defer s.Close()
	h, began := s.AllTenants(), time.Now()
	for {
		claimed, err := h.Claim(ctx, "bench", time.Minute, 1)
		if err != nil {
			return 0, err
		}
		if len(claimed) == 0 {
			return time.Since(began), nil
		}
		c := &claimed[0]
		if err := k.publish(ctx, c.Event.MessageID(), c.Event.Data.Bytes()); err != nil {
			return 0, err
		}
		done, err := h.Settle(ctx, []outbox.Settlement{{Row: c.Row, Token: c.Token, Action: outbox.Ack}})
		if err != nil || done[0].Err != nil {
			return 0, errors.Join(err, done[0].Err)
		}
	}
}
