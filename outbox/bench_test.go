package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// BenchmarkExchange moves rows through claim and ack, each turn acking the last
// claim and claiming the next. It reports the time of a row and of the lock.
func BenchmarkExchange(b *testing.B) {
	for _, batch := range []int{32, 256, 512, 1000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			s := outboxtest.NewStore(b)
			db := outboxtest.Producer(b, s.Path())
			fill(b, db, 20_000)
			h := s.AllTenants()
			var settle []outbox.Settlement
			var rows int
			var held []time.Duration
			var cpu time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := processCPU()
				x, err := h.Exchange(context.Background(), settle, outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: batch})
				if err != nil || x.ClaimErr != nil {
					b.Fatal(err, x.ClaimErr)
				}
				if len(x.Claimed) == 0 {
					b.StopTimer()
					must(b, db, `UPDATE dovecote_deliveries SET state = 'pending', delivered_at = NULL WHERE state = 'delivered'`)
					settle = nil
					b.StartTimer()
					continue
				}
				cpu += processCPU() - start
				rows += len(x.Claimed)
				held = append(held, x.Held)
				settle = settle[:0]
				for _, c := range x.Claimed {
					settle = append(settle, outbox.Settlement{Row: c.Row, Token: c.Token, Action: outbox.Ack})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(rows), "cpu-ns/row")
			slices.Sort(held)
			b.ReportMetric(float64(held[len(held)/2].Microseconds()), "µs-lock-p50")
			b.ReportMetric(float64(held[len(held)*99/100].Microseconds()), "µs-lock-p99")
		})
	}
}

// processCPU is the time that this process has spent on the processors, which other
// processes do not disturb.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func fill(tb testing.TB, db *sql.DB, n int) {
	tb.Helper()
	data := make([]byte, 1024)
	for i := range data {
		data[i] = 'x'
	}
	for n > 0 {
		batch := min(n, 1000)
		list := make([]outbox.Event, batch)
		for i := range list {
			list[i] = event("acme", fmt.Sprint(n-i))
			list[i].ContentType, list[i].Data = "application/octet-stream", outbox.Binary(data)
		}
		outboxtest.Enqueue(tb, db, list...)
		n -= batch
	}
}

// BenchmarkEnqueue compares an enqueue with the bare two inserts, one to a
// transaction and a hundred.
func BenchmarkEnqueue(b *testing.B) {
	const bareEvent = `INSERT INTO dovecote_events (tenant_id, stream, specversion, event_id, source, event_type, datacontenttype, data_kind, data)
		VALUES (?, ?, '1.0', ?, ?, ?, ?, 'json', ?)`
	const bareDelivery = `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state) VALUES (?, ?, 'pending')`
	body := []byte(`{"id":1}`)
	ctx := context.Background()
	forms := map[string]func(tx *sql.Tx, ids []string) error{
		"bare": func(tx *sql.Tx, ids []string) error {
			for _, id := range ids {
				r, err := tx.ExecContext(ctx, bareEvent, "acme", "orders", id, "/orders", "com.example.order.placed", "application/json", body)
				if err != nil {
					return err
				}
				row, _ := r.LastInsertId()
				if _, err := tx.ExecContext(ctx, bareDelivery, row, "acme"); err != nil {
					return err
				}
			}
			return nil
		},
		"bare-prepared": func(tx *sql.Tx, ids []string) error {
			event, err := tx.PrepareContext(ctx, bareEvent)
			if err != nil {
				return err
			}
			delivery, err := tx.PrepareContext(ctx, bareDelivery)
			if err != nil {
				return err
			}
			for _, id := range ids {
				r, err := event.ExecContext(ctx, "acme", "orders", id, "/orders", "com.example.order.placed", "application/json", body)
				if err != nil {
					return err
				}
				row, _ := r.LastInsertId()
				if _, err := delivery.ExecContext(ctx, row, "acme"); err != nil {
					return err
				}
			}
			return nil
		},
		"enqueue": func(tx *sql.Tx, ids []string) error {
			for _, id := range ids {
				if _, err := outbox.Enqueue(ctx, tx, event("acme", id)); err != nil {
					return err
				}
			}
			return nil
		},
		"enqueue-all": func(tx *sql.Tx, ids []string) error {
			list := make([]outbox.Event, len(ids))
			for i, id := range ids {
				list[i] = event("acme", id)
			}
			_, err := outbox.EnqueueAll(ctx, tx, list)
			return err
		},
	}
	for _, size := range []int{1, 100} {
		for _, form := range []string{"bare", "enqueue", "bare-prepared", "enqueue-all"} {
			b.Run(fmt.Sprintf("%d/%s", size, form), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "outbox.db")
				if _, err := outbox.Migrate(ctx, path, outbox.MigrateOptions{Create: true}); err != nil {
					b.Fatal(err)
				}
				db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=synchronous(normal)&_pragma=foreign_keys(1)")
				if err != nil {
					b.Fatal(err)
				}
				defer db.Close()
				db.SetMaxOpenConns(1)
				n := 0
				b.ReportAllocs()
				start := processCPU()
				for b.Loop() {
					ids := make([]string, size)
					for i := range ids {
						n++
						ids[i] = fmt.Sprint(n)
					}
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						b.Fatal(err)
					}
					if err := forms[form](tx, ids); err != nil {
						b.Fatal(err)
					}
					if err := tx.Commit(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processCPU()-start).Nanoseconds())/float64(n), "cpu-ns/event")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
			})
		}
	}
}
