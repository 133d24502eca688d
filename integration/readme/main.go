// Command readme is the first use of the outbox in Go, as README.md shows it.
package main

import (
	"context"
	"database/sql"
	"log"

	_ "modernc.org/sqlite" // any SQLite driver will do

	"github.com/outbox-relay/relay/outbox"
)

func main() {
	db, err := sql.Open("sqlite", "file:shop.db?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := placeOrder(context.Background(), db, "o-1001", 4200); err != nil {
		log.Fatal(err)
	}
}

// placeOrder commits an order together with its event, or neither.
func placeOrder(ctx context.Context, db *sql.DB, id string, cents int) error {
	tx, err := outbox.Begin(ctx, db) // BEGIN IMMEDIATE, on every driver
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, cents) VALUES (?, ?)", id, cents); err != nil {
		return err
	}
	_, err = outbox.Enqueue(ctx, tx, outbox.Event{
		Tenant:      "acme",
		Stream:      "orders",
		ID:          id,
		Source:      "/shop",
		Type:        "com.example.order.placed",
		ContentType: "application/json",
		Data:        outbox.JSON([]byte(`{"order":"` + id + `"}`)),
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}
