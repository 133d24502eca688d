package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// blocking makes the broker block the subjects for which blocked is true.
func (b *fakeBroker) blocking(code Code, blocked func(subject string) bool) {
	b.set(func(b *fakeBroker) {
		b.behave = func(m *Message) answer {
			if blocked(m.Subject) {
				return answered(Blocked, code)
			}
			return stored
		}
	})
}

func TestBlockedSubjectDelaysNoOtherOfItsRoute(t *testing.T) {
	run(t, func(o *Options) { o.Batch = 10 }, func(t *testing.T, r *rig) {
		r.broker.blocking(CodePermissionDenied, func(s string) bool { return s == "ev.no" })
		blocked := r.enqueue(t, "no", 10)
		good := r.enqueue(t, "ok", 5)
		eventually(t, time.Second, "good rows delivered", func() bool { return r.count(t, outbox.Delivered) == len(good) })
		time.Sleep(10 * time.Minute)
		for _, row := range blocked {
			d := r.delivery(t, row)
			// Probes are at most 30 s apart, after ten quick ones at most.
			if d.State != outbox.Pending || d.FailureCode != "permission_denied" || d.Attempts > 35 {
				t.Errorf("row %d: %+v", row, d)
			}
		}
		s := r.relay.Snapshot().Routes
		if len(s) != 1 || !s[0].Paused || s[0].Code != "permission_denied" || s[0].Since.IsZero() {
			t.Errorf("snapshot has %+v", s)
		}
		more := r.enqueue(t, "ok", 5)
		eventually(t, time.Second, "later good rows delivered", func() bool {
			return r.count(t, outbox.Delivered) == len(good)+len(more)
		})
		r.broker.up()
		eventually(t, 35*time.Second, "blocked rows delivered", func() bool { return r.count(t, outbox.Pending) == 0 })
		if n := r.count(t, outbox.Quarantined); n != 0 {
			t.Errorf("%d rows quarantined", n)
		}
		paused := r.log.with(t, "route paused; other routes and subjects go on")
		resumed := r.log.with(t, "route resumed")
		if len(paused) != 1 || len(resumed) != 1 || paused[0]["subject"] != "ev.no" {
			t.Errorf("logged %v and %v", paused, resumed)
		}
		if s := r.relay.Snapshot().Routes; s[0].Paused {
			t.Errorf("snapshot still has %+v", s)
		}
	})
}

func TestFullStreamTakesTheRestOnceThereIsSpace(t *testing.T) {
	run(t, quick, func(t *testing.T, r *rig) {
		space := 3
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(*Message) answer {
				if space == 0 {
					return answered(Blocked, CodeStreamFull)
				}
				space--
				return stored
			}
		})
		r.enqueue(t, "orders", 6)
		time.Sleep(20 * time.Second)
		if n := r.count(t, outbox.Pending); n != 3 {
			t.Fatalf("%d rows pending, want 3", n)
		}
		r.broker.set(func(*fakeBroker) { space = 100 })
		eventually(t, 2*time.Second, "all delivered", func() bool { return r.count(t, outbox.Delivered) == 6 })
	})
}

func TestManyBlockedSubjectsPauseTheWholeRoute(t *testing.T) {
	run(t, func(o *Options) {
		o.Routes = testRoutes(t, Route{Stream: "s*", Subject: "ev.{stream}"}, Route{Subject: "other.{stream}"})
	}, func(t *testing.T, r *rig) {
		r.broker.blocking(CodeNoStream, func(s string) bool { return s[:3] == "ev." })
		var rows []int64
		for i := range 200 {
			rows = append(rows, r.enqueue(t, fmt.Sprintf("s%d", i), 1)...)
		}
		other := r.enqueue(t, "x", 5)
		eventually(t, time.Second, "the other route goes on", func() bool { return r.count(t, outbox.Delivered) == len(other) })
		time.Sleep(10 * time.Minute)
		published := 0
		for _, row := range rows {
			published += len(r.broker.published(row))
		}
		// One probe at a time, not one for each subject.
		if limit := len(rows) + 2*maxPausedSubjects*10 + 40; published > limit {
			t.Errorf("%d publishes in ten minutes", published)
		}
		if n := len(r.log.lines(t)); n > 10 {
			t.Errorf("%d log lines", n)
		}
		r.broker.up()
		eventually(t, 35*time.Second, "all delivered", func() bool { return r.count(t, outbox.Pending) == 0 })
	})
}

// A deep blocked backlog may not spin, and may not fill the batches of others.
func TestDeepBlockedBacklogTakesABoundedShare(t *testing.T) {
	run(t, func(o *Options) { o.Batch, o.InFlight = 200, 400 }, func(t *testing.T, r *rig) {
		r.broker.blocking(CodeNoStream, func(s string) bool { return s == "ev.blocked" })
		const deep = 3000
		r.enqueue(t, "blocked", deep)
		eventually(t, time.Minute, "every blocked row put off once", func() bool {
			return r.delivery(t, int64(r.next)).Attempts > 0
		})
		time.Sleep(time.Minute) // the cadence is at its longest now
		if due := r.dueWithin(t, time.Second); due > putOffRate {
			t.Errorf("%d rows are due within a second", due)
		}
		turns, _ := r.seam.counts()
		time.Sleep(time.Minute)
		after, _ := r.seam.counts()
		if n := after - turns; n > 1000 {
			t.Errorf("%d turns in a minute", n)
		}
		good := r.enqueue(t, "good", 10)
		eventually(t, time.Second, "good rows delivered", func() bool { return r.count(t, outbox.Delivered) == len(good) })
		r.broker.up()
		eventually(t, time.Minute, "all delivered", func() bool { return r.count(t, outbox.Delivered) == deep+len(good) })
	})
}

// dueWithin counts the pending rows that come due within d.
func (f *testFile) dueWithin(tb testing.TB, d time.Duration) int {
	tb.Helper()
	due, err := f.store.AllTenants().Due(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	n, after := 0, int64(0)
	for {
		page, err := f.store.AllTenants().List(tb.Context(), outbox.Filter{State: outbox.Pending, After: after}, 1000)
		if err != nil {
			tb.Fatal(err)
		}
		for _, e := range page {
			if e.Delivery.AvailableAt.Before(due.Now.Add(d)) {
				n++
			}
		}
		if len(page) < 1000 {
			return n
		}
		after = page[len(page)-1].Row
	}
}

func TestPauseEndsWhenItsRowsAreGone(t *testing.T) {
	run(t, quick, func(t *testing.T, r *rig) {
		r.broker.blocking(CodeNoStream, func(string) bool { return true })
		row := r.enqueue(t, "orders", 1)
		eventually(t, time.Second, "paused", func() bool {
			routes := r.relay.Snapshot().Routes // none before the loop's first step
			return len(routes) > 0 && routes[0].Paused
		})
		eventually(t, time.Minute, "quarantined by a person", func() bool {
			res, err := r.store.AllTenants().QuarantinePending(t.Context(), row, "not wanted")
			return err == nil && res[0].Err == nil
		})
		eventually(t, 3*time.Minute, "the pause ends", func() bool { return !r.relay.Snapshot().Routes[0].Paused })
	})
}

func TestSlotsAreSpreadBehindTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := &pause{cadence: newCadence(Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 2})}
		p.schedule(now)
		if at := p.nextSlot(now, 1); !at.Equal(now.Add(time.Second)) {
			t.Errorf("the first row is due after %v, not at the probe", at.Sub(now))
		}
		var last time.Time
		for i := range 10 * putOffRate {
			at := p.nextSlot(now, 1)
			if at.Before(p.probeAt.Add(probeHead)) || at.Before(last) {
				t.Fatalf("slot %d is %v after the probe", i, at.Sub(p.probeAt))
			}
			last = at
		}
		if span := last.Sub(p.probeAt); span < 9*time.Second || span > 12*time.Second {
			t.Errorf("%d rows span %v", 10*putOffRate, span)
		}
	})
}
