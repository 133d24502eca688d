//go:build unix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/outbox"
)

// The environment of a process that does one thing.
const (
	roleEnv    = "RELAY_BENCH_ROLE"
	optionsEnv = "RELAY_BENCH_OPTIONS"
)

// producerOptions are for an application that writes events, each in its own
// transaction with a row of the application.
type producerOptions struct {
	DB     string
	Prefix string        // of the event ids
	Every  time.Duration // 0: flat out
	For    time.Duration
	Count  int // 0: as many as there is time for
}

func runRole(role string) error {
	var o producerOptions
	if err := json.Unmarshal([]byte(os.Getenv(optionsEnv)), &o); err != nil {
		return err
	}
	if role != "producer" {
		return fmt.Errorf("unknown role %q", role)
	}
	n, err := produce(context.Background(), o)
	if err == nil {
		_, err = fmt.Println(n)
	}
	return err
}

// produce writes events whose type is the time just before their transaction
// began, and returns their number.
func produce(ctx context.Context, o producerOptions) (int, error) {
	db, err := openApp(o.DB)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, note TEXT)`); err != nil {
		return 0, err
	}
	data, began, n := payload(eventSize), time.Now(), 0
	for ; n < o.Count || o.Count == 0 && time.Since(began) < o.For; n++ {
		e := event(o.Prefix+strconv.Itoa(n), data)
		e.Type = strconv.FormatInt(time.Now().UnixNano(), 10)
		if err := order(ctx, db, e); err != nil {
			return n, err
		}
		time.Sleep(time.Until(began.Add(time.Duration(n+1) * o.Every)))
	}
	return n, nil
}

func order(ctx context.Context, db *sql.DB, e outbox.Event) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (note) VALUES (?)`, e.ID); err != nil {
		return err
	}
	if _, err := outbox.Enqueue(ctx, tx, e); err != nil {
		return err
	}
	return tx.Commit()
}

// lags are the times from before a producer's transaction to the broker's
// storing of its event, in ms, for the messages from the sequence first on.
func (k *broker) lags(ctx context.Context, first uint64) ([]float64, error) {
	stored, err := k.stored(ctx)
	if err != nil {
		return nil, err
	}
	c, err := k.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
	})
	if err != nil {
		return nil, err
	}
	messages, err := c.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	var lags []float64
	for range stored - int(first) + 1 {
		m, err := messages.Next()
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		began, err := strconv.ParseInt(m.Headers().Get("ce-type"), 10, 64)
		if err != nil {
			return nil, err
		}
		lags = append(lags, float64(meta.Timestamp.UnixNano()-began)/1e6)
	}
	return lags, nil
}
