package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

func TestBadRowsAreSetAsideAndTheTurnGoesOn(t *testing.T) {
	run(t, func(o *Options) { o.Batch = 10 }, func(t *testing.T, r *rig) {
		r.spoil = true
		r.stop(t)
		bad := r.enqueue(t, "orders", 35) // whole batches of them
		for _, row := range bad {
			r.exec(t, `UPDATE dovecote_events SET extensions = '{"broken' WHERE row_id = ?`, row)
		}
		good := r.enqueue(t, "orders", 5)
		r.broker.set(func(b *fakeBroker) { b.times = make(map[int64][]time.Time) })
		relay, err := New(r.o)
		if err != nil {
			t.Fatal(err)
		}
		r.relay = relay
		began := time.Now()
		r.start(t)
		eventually(t, time.Second, "good rows delivered", func() bool { return r.count(t, outbox.Delivered) == len(good) })
		if d := time.Since(began); d > 100*time.Millisecond {
			t.Errorf("good rows waited %v", d)
		}
		for _, row := range bad {
			d := r.delivery(t, row)
			if d.State != outbox.Quarantined || !strings.HasPrefix(d.QuarantineReason, "undecodable: ") {
				t.Fatalf("row %d: %+v", row, d)
			}
			if n := len(r.broker.published(row)); n != 0 {
				t.Errorf("row %d was published", row)
			}
		}
		if n := len(r.log.with(t, "row quarantined")); n != noteTexts[noteQuarantined].burst {
			t.Errorf("%d quarantines logged one by one", n)
		}
	})
}

func TestBadRowsThatNobodyCanSetAsideDoNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.seam.exchange = exchangeOf(&outbox.BadRowsError{Rows: []outbox.BadRow{{Row: 1, Code: "undecodable", Err: errDown}}})
		r.start(t)
		time.Sleep(time.Minute)
		if turns, _ := r.seam.counts(); turns > 200 {
			t.Errorf("%d turns in a minute", turns)
		}
	})
}

func TestRowsTakenFromDeadWorkers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		attempts int // before the relay's own claim
		failure  string
		state    outbox.State
		reason   string // prefix
		recorded string // failure code afterwards
	}{
		{name: "a few crashes are forgiven", attempts: 4, state: outbox.Delivered},
		{name: "too many crashes end it", attempts: 5, state: outbox.Quarantined, reason: "crash_loop: "},
		{name: "too many crashes after a failure end it", attempts: 5, failure: "publish_timeout",
			state: outbox.Quarantined, reason: "crash_loop: ", recorded: "publish_timeout"},
		{name: "one crash after a long outage does not", attempts: 500, failure: "unanswered",
			state: outbox.Delivered, recorded: "lease_expired"},
		{name: "one crash after a blocked route does not", attempts: 500, failure: "no_stream",
			state: outbox.Delivered, recorded: "lease_expired"},
		{name: "a crash loop after an outage does", attempts: 501, failure: "lease_expired",
			state: outbox.Quarantined, reason: "crash_loop: ", recorded: "lease_expired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { quick(o); o.MaxAttempts = 5 })
				row := r.enqueue(t, "orders", 1)[0]
				// Another worker claims it, and dies.
				claimed, err := r.store.AllTenants().Claim(t.Context(), "other", time.Second, 1)
				if err != nil || len(claimed) != 1 {
					t.Fatal(claimed, err)
				}
				r.exec(t, `UPDATE dovecote_deliveries SET attempts = ?, last_failure_code = nullif(?, ''),
					last_failure_detail = CASE WHEN ?2 = '' THEN NULL ELSE 'x' END WHERE event_row_id = ?`,
					tc.attempts, tc.failure, row)
				r.start(t)
				eventually(t, time.Minute, string(tc.state), func() bool { return r.delivery(t, row).State == tc.state })
				d := r.delivery(t, row)
				if !strings.HasPrefix(d.QuarantineReason, tc.reason) || d.FailureCode != tc.recorded {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}

func TestWindowStaysWithinItsBytes(t *testing.T) {
	run(t, func(o *Options) { o.InFlightBytes = 1 << 20 }, func(t *testing.T, r *rig) {
		const size = 100 << 10
		held, most := 0, 0
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(*Message) answer {
				held++
				most = max(most, held)
				time.AfterFunc(9*time.Millisecond, func() { b.set(func(*fakeBroker) { held-- }) })
				a := stored
				a.after = 10 * time.Millisecond
				return a
			}
		})
		events := make([]outbox.Event, 60)
		for i := range events {
			events[i] = r.event("orders")
			events[i].ContentType, events[i].Data = "application/octet-stream", outbox.Binary(make([]byte, size))
		}
		huge := r.event("orders")
		huge.ContentType, huge.Data = "application/octet-stream", outbox.Binary(make([]byte, 3<<20))
		r.commit(t, append(events, huge)...)
		eventually(t, time.Minute, "all delivered", func() bool { return r.count(t, outbox.Delivered) == len(events)+1 })
		if most > 11 || most < 5 {
			t.Errorf("up to %d messages of %d bytes in flight", most, size)
		}
	})
}

func TestWindowStaysWithinItsRows(t *testing.T) {
	run(t, func(o *Options) { o.Batch, o.InFlight = 64, 100 }, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(*Message) answer { return answer{Result: Result{Sent: true}, never: true} }
		})
		r.enqueue(t, "orders", 500)
		time.Sleep(5 * time.Second)
		if n := r.count(t, outbox.InClaim); n != 100 {
			t.Fatalf("%d rows claimed", n)
		}
		for range 10 {
			r.broker.answerAll(Result{Class: Accepted, Sent: true})
			time.Sleep(time.Second)
			if n := r.count(t, outbox.InClaim); n > 100 {
				t.Fatalf("%d rows claimed", n)
			}
		}
		if n := r.count(t, outbox.Delivered); n != 500 {
			t.Errorf("%d rows delivered", n)
		}
	})
}

func TestReloadChangesLimitsBetweenTurns(t *testing.T) {
	run(t, func(o *Options) { o.Batch, o.InFlight = 10, 10 }, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(*Message) answer { return answer{Result: Result{Sent: true}, never: true} }
		})
		r.enqueue(t, "orders", 100)
		time.Sleep(time.Second)
		r.relay.Reload(Settings{Batch: 50, InFlight: 50})
		r.broker.answerAll(Result{Class: Accepted, Sent: true})
		time.Sleep(time.Second)
		if n := r.count(t, outbox.InClaim); n != 50 {
			t.Errorf("%d rows claimed after the window grew to 50", n)
		}
		r.relay.Reload(Settings{Batch: 5, InFlight: 5})
		r.broker.answerAll(Result{Class: Accepted, Sent: true})
		time.Sleep(time.Second)
		if n := r.count(t, outbox.InClaim); n != 5 {
			t.Errorf("%d rows claimed after the window shrank to 5", n)
		}
		r.broker.answerAll(Result{Class: Accepted, Sent: true})
		r.broker.up()
		eventually(t, time.Minute, "all delivered", func() bool { return r.count(t, outbox.Delivered) == 100 })
	})
}
