package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// quick makes retries come soon.
func quick(o *Options) {
	o.Backoff = Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}
}

func TestRejectedRowIsQuarantinedAtOnceAndNeighboursAreDelivered(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(m *Message) answer {
				if m.Subject == "ev.bad" {
					return answered(Rejected, CodeTooLarge)
				}
				return stored
			}
		})
		bad := r.enqueue(t, "bad", 1)[0]
		good := r.enqueue(t, "good", 5)
		eventually(t, time.Second, "good rows delivered", func() bool { return r.count(t, outbox.Delivered) == len(good) })
		eventually(t, time.Second, "bad row quarantined", func() bool { return r.count(t, outbox.Quarantined) == 1 })
		d := r.delivery(t, bad)
		if d.Attempts != 1 || d.QuarantineReason != "too_large: says the test" {
			t.Errorf("%+v", d)
		}
		q := r.relay.Snapshot().Quarantines
		if len(q) != 1 || q[0].Row != bad || q[0].Code != "too_large" || q[0].Stream != "bad" {
			t.Errorf("snapshot has %+v", q)
		}
	})
}

func TestInvalidSubjectIsRejectedWithoutThePublisher(t *testing.T) {
	run(t, func(o *Options) {
		o.Routes = testRoutes(t, Route{Subject: "ev.{type}"})
	}, func(t *testing.T, r *rig) {
		e := r.event("orders")
		e.Type = "a..b"
		row := r.commit(t, e)[0]
		good := r.enqueue(t, "orders", 1)[0]
		eventually(t, time.Second, "quarantined", func() bool { return r.delivery(t, row).State == outbox.Quarantined })
		eventually(t, time.Second, "neighbour delivered", func() bool { return r.delivery(t, good).State == outbox.Delivered })
		d := r.delivery(t, row)
		if !strings.HasPrefix(d.QuarantineReason, "invalid_subject: ") || !strings.Contains(d.QuarantineReason, "ev.a..b") || d.Attempts != 1 {
			t.Errorf("%+v", d)
		}
		if n := len(r.broker.published(row)); n != 0 {
			t.Errorf("published %d times", n)
		}
	})
}

func TestFailedRowIsRetriedOnTheBackoff(t *testing.T) {
	run(t, quick, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(m *Message) answer {
				if len(b.times[m.Row]) < 4 {
					return answered(Failed, CodePublishTimeout)
				}
				return stored
			}
		})
		row := r.enqueue(t, "orders", 1)[0]
		eventually(t, 10*time.Second, "delivered", func() bool { return r.delivery(t, row).State == outbox.Delivered })
		d := r.delivery(t, row)
		if d.Attempts != 5 || d.FailureCode != "publish_timeout" {
			t.Errorf("%+v", d)
		}
		times := r.broker.published(row)
		for i, want := range []time.Duration{100, 200, 400, 800} {
			want *= time.Millisecond
			if gap := times[i+1].Sub(times[i]); gap < want || gap > want+50*time.Millisecond {
				t.Errorf("retry %d came after %v, want %v", i+1, gap, want)
			}
		}
	})
}

func TestAttemptsAreExhaustedByTwoFailuresRunning(t *testing.T) {
	for _, tc := range []struct {
		name     string
		max      int
		answers  []answer // one for each attempt; the last repeats
		state    outbox.State
		attempts int64
	}{
		{"fourth failure of four", 4, []answer{answered(Failed, CodePublishTimeout)}, outbox.Quarantined, 4},
		{"never with max 0", 0, append(repeat(answered(Failed, CodePublishTimeout), 30), stored), outbox.Delivered, 31},
		{"first failure after a blocked route does not count", 3,
			append(repeat(answered(Blocked, CodeNoStream), 5), answered(Failed, CodePublishTimeout), stored), outbox.Delivered, 7},
		{"second failure after a blocked route does", 3,
			append(repeat(answered(Blocked, CodeNoStream), 5), answered(Failed, CodePublishTimeout)), outbox.Quarantined, 7},
		{"unanswered never counts", 2,
			append(repeat(answered(Unavailable, CodeUnanswered), 6), stored), outbox.Delivered, 7},
		{"first failure after unanswered does not count", 2,
			append(repeat(answered(Unavailable, CodeUnanswered), 6), answered(Failed, CodeNotReady), stored), outbox.Delivered, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(o *Options) { quick(o); o.MaxAttempts = tc.max }, func(t *testing.T, r *rig) {
				r.broker.set(func(b *fakeBroker) {
					b.behave = func(m *Message) answer {
						return tc.answers[min(len(b.times[m.Row]), len(tc.answers)-1)]
					}
				})
				row := r.enqueue(t, "orders", 1)[0]
				eventually(t, 5*time.Minute, "settled", func() bool { return r.delivery(t, row).State == tc.state })
				d := r.delivery(t, row)
				if d.Attempts != tc.attempts {
					t.Errorf("%d attempts, want %d", d.Attempts, tc.attempts)
				}
				if tc.state == outbox.Quarantined && !strings.HasPrefix(d.QuarantineReason, "attempts_exhausted: ") {
					t.Errorf("reason %q", d.QuarantineReason)
				}
			})
		})
	}
}

func repeat(a answer, n int) []answer {
	out := make([]answer, n)
	for i := range out {
		out[i] = a
	}
	return out
}

func TestUnroutedRows(t *testing.T) {
	routes := testRoutes(t, Route{Stream: "orders", Subject: "ev.{stream}"})
	t.Run("wait for a route and are told of", func(t *testing.T) {
		run(t, func(o *Options) { quick(o); o.Routes = routes }, func(t *testing.T, r *rig) {
			row := r.enqueue(t, "other", 1)[0]
			eventually(t, time.Minute, "several attempts", func() bool { return r.delivery(t, row).Attempts > 22 })
			if d := r.delivery(t, row); d.FailureCode != "unrouted" || d.State == outbox.Quarantined {
				t.Errorf("%+v", d)
			}
			if n := r.relay.Snapshot().Unrouted; n == 0 {
				t.Error("the snapshot knows of no unrouted row")
			}
			r.relay.Reload(Settings{Routes: testRoutes(t), Backoff: r.o.Backoff})
			eventually(t, time.Minute, "delivered under the new routes", func() bool {
				return r.delivery(t, row).State == outbox.Delivered
			})
			eventually(t, 3*time.Minute, "no unrouted row known", func() bool { return r.relay.Snapshot().Unrouted == 0 })
		})
	})
	t.Run("are quarantined if so told", func(t *testing.T) {
		run(t, func(o *Options) { o.Routes, o.Unrouted = routes, UnroutedQuarantine }, func(t *testing.T, r *rig) {
			row := r.enqueue(t, "other", 1)[0]
			eventually(t, time.Second, "quarantined", func() bool { return r.delivery(t, row).State == outbox.Quarantined })
			if d := r.delivery(t, row); !strings.HasPrefix(d.QuarantineReason, "unrouted: ") {
				t.Errorf("reason %q", d.QuarantineReason)
			}
		})
	})
}

func TestRetriesComeDueInGroups(t *testing.T) {
	for _, tc := range []struct{ at, delay, want time.Duration }{
		{0, 500 * time.Millisecond, 500 * time.Millisecond},
		{30 * time.Millisecond, time.Second, 1070 * time.Millisecond},
		{100 * time.Millisecond, 2 * time.Second, 2 * time.Second},
		{100*time.Millisecond + 1, 2 * time.Second, 2100 * time.Millisecond},
		{7 * time.Hour, maxDelay, maxDelay},
		{7*time.Hour + 1, maxDelay, maxDelay},
	} {
		if got := grouped(tc.at, tc.delay); got != tc.want {
			t.Errorf("put back at %v for %v: delayed by %v, want %v", tc.at, tc.delay, got, tc.want)
		}
	}
	run(t, func(o *Options) {
		o.MaxAttempts, o.Backoff = 0, Backoff{Initial: 10 * time.Second, Max: 10 * time.Second, Multiplier: 1, Jitter: 0.5}
	}, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(*Message) answer { return answered(Failed, CodePublishTimeout) }
		})
		const rows = 1000
		r.enqueue(t, "orders", rows)
		time.Sleep(20 * time.Second)
		before, _ := r.seam.counts()
		time.Sleep(20 * time.Second)
		// A claim and a settlement for each group, or a little more.
		if after, _ := r.seam.counts(); after-before > 3*200 {
			t.Errorf("%d turns for %d retries", after-before, 2*rows)
		}
	})
}
