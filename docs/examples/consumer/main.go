// Command consumer shows how to consume what the relay publishes: it decodes
// events of both modes and has the effect of each exactly once, in its own
// database.
package main

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"
)

// event is a CloudEvents event as it arrived, with the tenant and stream of the
// outbox.
type event struct {
	tenant, stream string
	attributes     map[string]string // id, source, type, … and the extensions
	data           []byte
}

// decode reads a message of either mode.
func decode(h nats.Header, body []byte) (event, error) {
	e := event{attributes: map[string]string{}, data: body}
	var err error
	if e.tenant, err = url.PathUnescape(h.Get("Outbox-Tenant")); err != nil {
		return e, fmt.Errorf("Outbox-Tenant: %w", err)
	}
	if e.stream, err = url.PathUnescape(h.Get("Outbox-Stream")); err != nil {
		return e, fmt.Errorf("Outbox-Stream: %w", err)
	}
	if strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents+json") {
		return e, e.decodeStructured(body)
	}
	for header, values := range h {
		name, isAttribute := strings.CutPrefix(header, "ce-")
		if !isAttribute || len(values) != 1 {
			continue
		}
		// The NATS binding percent-encodes values once. PathUnescape leaves "+" alone.
		if e.attributes[name], err = url.PathUnescape(values[0]); err != nil {
			return e, fmt.Errorf("%s: %w", header, err)
		}
	}
	return e, e.check()
}

// decodeStructured reads the JSON envelope.
func (e *event) decodeStructured(body []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return err
	}
	e.data = members["data"]
	if encoded, ok := members["data_base64"]; ok {
		var text string
		if err := json.Unmarshal(encoded, &text); err != nil {
			return err
		}
		var err error
		if e.data, err = base64.StdEncoding.DecodeString(text); err != nil {
			return err
		}
	}
	delete(members, "data")
	delete(members, "data_base64")
	for name, raw := range members {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw) // a number or a boolean
		}
		e.attributes[name] = text
	}
	return e.check()
}

func (e *event) check() error {
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if e.attributes[name] == "" {
			return fmt.Errorf("no CloudEvents attribute %s", name)
		}
	}
	return nil
}

const schemaSQL = `
CREATE TABLE IF NOT EXISTS seen (
	tenant TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
	PRIMARY KEY (tenant, source, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (type TEXT PRIMARY KEY, n INTEGER NOT NULL)`

const seenSQL = `INSERT INTO seen (tenant, source, id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`

const effectSQL = `INSERT INTO counts (type, n) VALUES (?, 1) ON CONFLICT (type) DO UPDATE SET n = n + 1`

// apply has the event's effect, here to count it, unless it was seen before. Both
// are one transaction: that is what makes a second copy harmless.
func apply(ctx context.Context, db *sql.DB, e event) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	r, err := tx.ExecContext(ctx, seenSQL, e.tenant, e.attributes["source"], e.attributes["id"])
	if err != nil {
		return false, err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, effectSQL, e.attributes["type"]); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

// handle settles one message. Acknowledge only after the commit.
func handle(ctx context.Context, db *sql.DB, msg jetstream.Msg) error {
	e, err := decode(msg.Headers(), msg.Data())
	if err != nil {
		return errors.Join(err, msg.TermWithReason(err.Error())) // it will never be readable
	}
	if _, err := apply(ctx, db, e); err != nil {
		return errors.Join(err, msg.Nak())
	}
	return msg.Ack()
}

func run(ctx context.Context, server, stream, path string) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schemaSQL); err != nil {
		return err
	}
	nc, err := nats.Connect(server, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: "example", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		if err := handle(ctx, db, msg); err != nil {
			log.Print(err)
		}
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Drain()
	<-consuming.Closed()
	return nil
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: consumer SERVER STREAM DATABASE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}
