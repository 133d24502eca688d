package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/outbox-relay/relay/outbox"
)

// producer writes events as an application does: its commits are durable
// (synchronous FULL), whatever the relay's own connection uses.
type producer struct {
	db  *sql.DB
	max int // bytes of one event
}

// openProducer opens the outbox of c, which it checks first. Close it.
func openProducer(ctx context.Context, c *config) (*producer, error) {
	store, err := outbox.Open(ctx, c.Outbox.Path, c.storeOptions(writes))
	if err != nil {
		return nil, err
	}
	if err := store.Close(); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(c.Outbox.Path)
	if err != nil {
		return nil, err
	}
	uri := url.URL{Scheme: "file", Path: path, RawQuery: fmt.Sprintf(
		"mode=rw&_pragma=busy_timeout(%d)&_pragma=foreign_keys(1)&_pragma=synchronous(full)", c.Outbox.BusyTimeout.Milliseconds())}
	db, err := sql.Open("sqlite", uri.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &producer{db: db, max: int(c.Outbox.MaxEvent)}, nil
}

func (p *producer) close() error { return p.db.Close() }

// write runs fn in one transaction, all or nothing.
func (p *producer) write(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := outbox.Begin(ctx, p.db)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback() // what failed is the error that matters
		return err
	}
	return tx.Commit()
}

// printOutcome ends a command that wrote batches of lines: with how many lines came to
// what, or with the error, which then says it of the lines before.
func (a *app) printOutcome(err error, done map[string]int, form string, args ...any) error {
	var bad *inputError
	if errors.As(err, &bad) {
		bad.Done = done
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(done)
	}
	return a.printf(form, args...)
}
