package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

var errDown = errors.New("connection refused")

// down makes the broker unreachable.
func (b *fakeBroker) down() {
	b.set(func(b *fakeBroker) {
		b.usable, b.probe = errDown, errDown
		b.behave = func(*Message) answer { return answer{refuse: errDown} }
	})
}

// up makes it reachable again.
func (b *fakeBroker) up() {
	b.set(func(b *fakeBroker) { b.usable, b.probe, b.behave = nil, nil, nil })
}

func TestBrokerThatWasNeverUpCostsNoAttempts(t *testing.T) {
	run(t, func(o *Options) { quick(o); o.MaxAttempts = 5 }, func(t *testing.T, r *rig) {
		r.broker.down()
		rows := r.enqueue(t, "orders", 500)
		time.Sleep(10 * time.Minute)
		if n := r.count(t, outbox.Pending); n != len(rows) {
			t.Fatalf("%d of %d rows pending", n, len(rows))
		}
		if d := r.delivery(t, rows[0]); d.Attempts > 1 {
			t.Errorf("%d attempts during the outage", d.Attempts)
		}
		if !r.relay.Snapshot().BreakerOpen {
			t.Error("breaker closed")
		}
		_, before := r.seam.counts()
		time.Sleep(time.Minute)
		if _, after := r.seam.counts(); after != before {
			t.Errorf("%d claims while the breaker was open", after-before)
		}
		r.broker.up()
		began := time.Now()
		eventually(t, 5*time.Second, "all delivered", func() bool { return r.count(t, outbox.Delivered) == len(rows) })
		t.Logf("drained %v after the connection returned", time.Since(began))
		if lines := r.log.lines(t); len(lines) > 6 {
			t.Errorf("%d log lines: %v", len(lines), lines)
		}
		if r.relay.Snapshot().BreakerOpen {
			t.Error("breaker still open")
		}
	})
}

func TestOutageReleasesWhatWasNotSentAndRetriesWhatWas(t *testing.T) {
	run(t, quick, func(t *testing.T, r *rig) {
		// The first 100 messages leave and are never answered; then the connection breaks.
		r.broker.set(func(b *fakeBroker) {
			sent := 0
			b.behave = func(*Message) answer {
				if sent++; sent <= 100 {
					return answer{Result: Result{Sent: true}, never: true}
				}
				b.usable, b.probe = errDown, errDown
				return answer{refuse: errDown}
			}
		})
		rows := r.enqueue(t, "orders", 300)
		eventually(t, time.Second, "unsent rows released", func() bool { return r.count(t, outbox.Pending) == 200 })
		r.broker.answerAll(Result{Class: Unavailable, Code: CodeUnanswered, Detail: "connection lost", Sent: true})
		eventually(t, time.Second, "unanswered rows retried", func() bool { return r.count(t, outbox.Pending) == 300 })
		unanswered := 0
		for _, row := range rows {
			d := r.delivery(t, row)
			switch {
			case d.Attempts != 1:
				t.Fatalf("row %d has %d attempts", row, d.Attempts)
			case d.FailureCode == string(CodeUnanswered):
				unanswered++
			case d.FailureCode != "":
				t.Fatalf("row %d: failure %q", row, d.FailureCode)
			}
		}
		if unanswered != 100 {
			t.Errorf("%d rows recorded as unanswered, want 100", unanswered)
		}
		r.broker.up()
		eventually(t, 10*time.Second, "all delivered", func() bool { return r.count(t, outbox.Delivered) == 300 })
		for _, row := range rows {
			if d := r.delivery(t, row); d.Attempts > 2 {
				t.Errorf("row %d took %d attempts", row, d.Attempts)
			}
		}
		opened := r.log.with(t, "broker unavailable; nothing is claimed until it can be published to again")
		closed := r.log.with(t, "broker usable again")
		if len(opened) != 1 || len(closed) != 1 {
			t.Errorf("%d lines for the loss and %d for the return", len(opened), len(closed))
		}
	})
}

func TestProbesKeepTheirCadence(t *testing.T) {
	run(t, func(o *Options) {
		o.Backoff = Backoff{Initial: time.Second, Max: 5 * time.Minute, Multiplier: 2, Jitter: 0.2}
	}, func(t *testing.T, r *rig) {
		// JetStream has no quorum: connected, and useless.
		r.broker.set(func(b *fakeBroker) {
			b.probe = errors.New("no quorum")
			b.behave = func(*Message) answer { return answered(Unavailable, CodeNoQuorum) }
		})
		row := r.enqueue(t, "orders", 1)[0]
		time.Sleep(10 * time.Minute)
		probes := r.broker.probeTimes()
		if len(probes) < 20 {
			t.Fatalf("%d probes in ten minutes", len(probes))
		}
		for i := 1; i < len(probes); i++ {
			if gap := probes[i].Sub(probes[i-1]); gap > maxCadence+time.Second {
				t.Errorf("%v between two probes", gap)
			}
		}
		if first := probes[1].Sub(probes[0]); first > 3*time.Second {
			t.Errorf("%v between the first two probes", first)
		}
		if d := r.delivery(t, row); d.Attempts != 1 || d.FailureCode != "no_quorum" {
			t.Errorf("%+v", d)
		}
	})
}

func TestProbeThatLiesCostsFewAttempts(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(*Message) answer { return answered(Unavailable, CodeNoResources) }
		})
		rows := r.enqueue(t, "orders", 2000)
		time.Sleep(5 * time.Minute)
		total := int64(0)
		for _, row := range rows {
			total += r.delivery(t, row).Attempts
		}
		// One window before the breaker opens, then a handful for each probe.
		if limit := int64(len(rows) + 20*trialRows); total > limit {
			t.Errorf("%d attempts for %d rows", total, len(rows))
		}
		if n := len(r.log.lines(t)); n > 10 {
			t.Errorf("%d log lines", n)
		}
		r.broker.up()
		eventually(t, 2*time.Minute, "all delivered", func() bool { return r.count(t, outbox.Delivered) == len(rows) })
	})
}

func TestReturningConnectionIsUsedAtOnce(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.broker.down()
		rows := r.enqueue(t, "orders", 50)
		time.Sleep(20 * time.Minute)
		r.broker.up()
		eventually(t, 2*time.Second, "delivered", func() bool { return r.count(t, outbox.Delivered) == len(rows) })
	})
}

// A connection that breaks as soon as it is used, for minutes, is neither tried nor
// logged at the rate at which it returns, and a steady one is used soon after.
func TestFlappingBrokerIsLeftAlone(t *testing.T) {
	run(t, func(o *Options) {
		o.Backoff = Backoff{Initial: 100 * time.Millisecond, Max: time.Minute, Multiplier: 2, Jitter: 0.2}
	}, func(t *testing.T, r *rig) {
		n := 0
		for round := range 1000 { // five minutes
			r.broker.up()
			if round%4 == 0 {
				n += len(r.enqueue(t, "orders", 1))
			}
			time.Sleep(150 * time.Millisecond)
			r.broker.down()
			time.Sleep(150 * time.Millisecond)
		}
		if lines := len(r.log.lines(t)); lines > 60 {
			t.Errorf("%d log lines in five minutes", lines)
		}
		if r.count(t, outbox.Delivered) == 0 {
			t.Error("nothing was delivered meanwhile")
		}
		r.broker.up()
		eventually(t, 2*maxCadence, "delivered", func() bool { return r.count(t, outbox.Delivered) == n })
	})
}

// Short interruptions every few seconds cost little more than themselves.
func TestShortInterruptionsCostLittle(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		n := 0
		for range 30 {
			n += len(r.enqueue(t, "orders", 5))
			time.Sleep(5 * time.Second)
			if delivered := r.count(t, outbox.Delivered); delivered != n {
				t.Fatalf("%d of %d delivered", delivered, n)
			}
			r.broker.down()
			time.Sleep(100 * time.Millisecond)
			r.broker.up()
		}
	})
}
