// Package outbox writes events into a SQLite outbox in the caller's own
// transaction, and leases them to workers that publish them.
//
// A producer needs one call:
//
//	tx, err := outbox.Begin(ctx, db)
//	...
//	_, err = outbox.Enqueue(ctx, tx, outbox.Event{
//		Tenant: "acme", Stream: "orders",
//		ID: orderID, Source: "/orders", Type: "com.example.order.placed",
//		ContentType: "application/json", Data: outbox.JSON(body),
//	})
//	...
//	err = tx.Commit()
//
// Commit shows both the caller's rows and the event, rollback shows neither.
// Delivery is at least once: consumers deduplicate on (tenant, source, id).
// There is no exactly-once publication and no FIFO, and a lease does not
// outlive a slow worker.
//
// A worker opens the file with [Open], takes a [Handle], and moves events
// through [Handle.Exchange], or [Handle.Claim] and [Handle.Settle]. Every
// change after a claim is fenced by row and by the claim's 16-byte [Token].
// All lifecycle times come from the database's clock, never the worker's.
//
// Enqueue and its kin take the transaction of any SQLite driver. Open uses
// modernc.org/sqlite. Do not open one file with two drivers in one process: POSIX
// locks belong to the process, and the one driver's closing of the file drops the
// other's. Separate processes may use what they like.
package outbox
