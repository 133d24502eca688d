package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// exampleShop is an outbox file with n orders, open for a worker and for a producer.
func exampleShop(n int) (store *outbox.Store, db *sql.DB, end func()) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "shop.db")
	if _, err := outbox.Migrate(ctx, path, outbox.MigrateOptions{Create: true}); err != nil {
		log.Fatal(err)
	}
	if store, err = outbox.Open(ctx, path, outbox.Options{}); err != nil {
		log.Fatal(err)
	}
	if db, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)"); err != nil {
		log.Fatal(err)
	}
	tx, err := outbox.Begin(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	for i := range n {
		if _, err := outbox.Enqueue(ctx, tx, exampleOrder(fmt.Sprint("order-", i+1))); err != nil {
			log.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	return store, db, func() { db.Close(); store.Close(); os.RemoveAll(dir) }
}

func exampleOrder(id string) outbox.Event {
	return outbox.Event{
		Tenant: "acme", Stream: "orders", ID: id, Source: "/shop", Type: "com.example.order.placed",
		ContentType: "application/json", Data: outbox.JSON([]byte(`{"total":4200}`)),
	}
}

func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "shop.db")
	_, err = outbox.Open(ctx, path, outbox.Options{})
	fmt.Println("opened before it was created:", err == nil)

	if _, err := outbox.Migrate(ctx, path, outbox.MigrateOptions{Create: true}); err != nil {
		log.Fatal(err)
	}
	store, err := outbox.Open(ctx, path, outbox.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	fmt.Println("opened:", filepath.Base(store.Path()))
	// Output:
	// opened before it was created: false
	// opened: shop.db
}

func ExampleEnqueue() {
	_, db, end := exampleShop(0)
	defer end()
	ctx := context.Background()

	tx, err := outbox.Begin(ctx, db) // BEGIN IMMEDIATE, on every driver
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // does nothing after a commit
	// Write your own rows with tx, too.
	for range 2 {
		receipt, err := outbox.Enqueue(ctx, tx, exampleOrder("order-1"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(receipt.Row, receipt.Outcome == outbox.Enqueued)
	}
	changed := exampleOrder("order-1")
	changed.Subject = "changed"
	_, err = outbox.Enqueue(ctx, tx, changed)
	var conflict *outbox.IdempotencyConflictError
	fmt.Println(errors.As(err, &conflict))
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 true
	// 1 false
	// true
}

func ExampleHandle_Claim() {
	store, _, end := exampleShop(3)
	defer end()
	ctx := context.Background()

	h := store.AllTenants()
	claimed, err := h.Claim(ctx, "worker-1", time.Minute, 100)
	if err != nil {
		log.Fatal(err)
	}
	var batch []outbox.Settlement
	for _, c := range claimed {
		// Publish c.Event here, well within the lease.
		batch = append(batch, outbox.Settlement{Row: c.Row, Token: c.Token, Action: outbox.Ack})
	}
	batch[1].Action = outbox.Retry
	batch[1].Delay = 30 * time.Second
	batch[1].Failure = outbox.Failure{Code: "timeout", Detail: "no answer in 5 s"}
	settled, err := h.Settle(ctx, batch)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range settled {
		fmt.Println(s.Row, s.Err) // ErrLostClaim: the claim is another worker's now
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}

func ExampleHandle_Exchange() {
	store, _, end := exampleShop(5)
	defer end()
	ctx := context.Background()

	// One short transaction each turn: settle what is done, claim what is next.
	h := store.AllTenants()
	var done []outbox.Settlement
	for {
		x, err := h.Exchange(ctx, done, outbox.ClaimRequest{Worker: "worker-1", Lease: time.Minute, Limit: 2})
		if err = errors.Join(err, x.ClaimErr); err != nil {
			log.Fatal(err)
		}
		if fmt.Println("settled", len(x.Settled), "claimed", len(x.Claimed)); len(x.Claimed) == 0 {
			return
		}
		done = done[:0]
		for _, c := range x.Claimed {
			done = append(done, outbox.Settlement{Row: c.Row, Token: c.Token, Action: outbox.Ack})
		}
	}
	// Output:
	// settled 0 claimed 2
	// settled 2 claimed 2
	// settled 2 claimed 1
	// settled 1 claimed 0
}

func ExampleHandle_Page() {
	store, _, end := exampleShop(3)
	defer end()
	ctx := context.Background()

	cursor := int64(0)
	for {
		page, err := store.AllTenants().Page(ctx, cursor, 2)
		if err != nil {
			log.Fatal(err)
		}
		if len(page) == 0 {
			return
		}
		for _, e := range page {
			fmt.Println(e.Row, e.Event.ID, e.Delivery.State)
			cursor = e.Row
		}
	}
	// Output:
	// 1 order-1 pending
	// 2 order-2 pending
	// 3 order-3 pending
}

func ExampleHandle_Snapshot() {
	store, _, end := exampleShop(3)
	defer end()
	ctx := context.Background()

	snapshot, err := store.AllTenants().Snapshot(ctx, outbox.SnapshotOptions{PageSize: 2, MaxTime: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	for {
		page, err := snapshot.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil { // ErrSnapshotBudget: go on with a new one after snapshot.Cursor()
			log.Fatal(err)
		}
		fmt.Println(len(page), "events")
	}
	fmt.Println("up to row", snapshot.Upper())
	// Output:
	// 2 events
	// 1 events
	// up to row 3
}

func ExampleHandle_Requeue() {
	store, _, end := exampleShop(1)
	defer end()
	ctx := context.Background()

	h := store.AllTenants()
	if _, err := h.QuarantinePending(ctx, []int64{1}, "wait for the new consumer"); err != nil {
		log.Fatal(err)
	}
	rows, err := h.SelectRows(ctx, outbox.Filter{State: outbox.Quarantined, Code: outbox.OperatorCode}, 1000)
	if err != nil {
		log.Fatal(err)
	}
	results, err := h.Requeue(ctx, append(rows, 99))
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Row, r.Err)
	}
	// Output:
	// 1 <nil>
	// 99 no such row
}

func ExampleHandle_Prune() {
	store, _, end := exampleShop(1)
	defer end()

	pruned, err := store.AllTenants().Prune(context.Background(), outbox.PruneRequest{
		Delivered: 7 * 24 * time.Hour, // keep at least as long as a producer may repeat itself
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pruned.Delivered, "removed")
	// Output: 0 removed
}

func ExampleHandle_Stats() {
	store, _, end := exampleShop(3)
	defer end()

	stats, err := store.AllTenants().Stats(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.Pending, "pending,", stats.Quarantined, "quarantined,", stats.Orphans, "orphans")
	for _, s := range stats.Streams {
		fmt.Println(s.Stream, s.Pending)
	}
	// Output:
	// 3 pending, 0 quarantined, 0 orphans
	// orders 3
}

func ExampleHandle_Check() {
	store, db, end := exampleShop(3)
	defer end()

	// Somebody wrote a row by hand.
	if _, err := db.Exec(`UPDATE dovecote_events SET extensions = '{ }' WHERE row_id = 2`); err != nil {
		log.Fatal(err)
	}
	findings, err := store.AllTenants().Check(context.Background(), 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range findings {
		fmt.Println(f.Row, f.Rule)
	}
	// Output: 2 undecodable
}

func ExampleHandle_Repair() {
	store, db, end := exampleShop(2)
	defer end()
	ctx := context.Background()

	// A producer wrote an event and no delivery.
	if _, err := db.Exec(`DELETE FROM dovecote_deliveries WHERE event_row_id = 2`); err != nil {
		log.Fatal(err)
	}
	h := store.AllTenants()
	orphans, err := h.Orphans(ctx, 0, 100)
	if err != nil {
		log.Fatal(err)
	}
	repaired, err := h.Repair(ctx, orphans)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(repaired)
	// Output: [2]
}

func ExampleImport() {
	_, db, end := exampleShop(0)
	defer end()
	ctx := context.Background()

	tx, err := outbox.Begin(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	sent := outbox.ImportEvent{Event: exampleOrder("order-1"), DeliveredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for range 2 { // an import that was interrupted can be run again
		outcome, row, err := outbox.Import(ctx, tx, sent)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(row, outcome == outbox.Imported)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 true
	// 1 false
}

func ExampleFinalize() {
	_, db, end := exampleShop(1)
	defer end()
	ctx := context.Background()

	tx, err := outbox.Begin(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	// The older outbox has sent it meanwhile.
	if err := outbox.Finalize(ctx, tx, "acme", 1, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tx.Commit())
	// Output: <nil>
}
