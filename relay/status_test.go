package relay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/outbox"
)

// The names are a public interface: more may come, none is renamed.
func TestMetricNames(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(m *Message) answer {
				switch m.Subject {
				case "ev.bad":
					return answered(Rejected, CodeTooLarge)
				case "ev.twice":
					return answer{Result: Result{Class: Accepted, Duplicate: true, Sent: true}}
				}
				return stored
			}
		})
		r.enqueue(t, "orders", 3)
		r.enqueue(t, "bad", 2)
		r.enqueue(t, "twice", 1)
		time.Sleep(10 * time.Second)
		for _, want := range []struct {
			name   string
			labels []string
			value  float64
		}{
			{"relay_events", []string{"state", "quarantined", "stream", "bad"}, 2},
			{"relay_events", []string{"state", "pending", "stream", "bad"}, 0},
			{"relay_oldest_pending_seconds", []string{"stream", "bad"}, 0},
			{"relay_published_total", []string{"stream", "orders", "result", "accepted"}, 3},
			{"relay_published_total", []string{"stream", "bad", "result", "rejected"}, 2},
			{"relay_duplicates_total", nil, 1},
			{"relay_settled_total", []string{"outcome", "acked"}, 4},
			{"relay_settled_total", []string{"outcome", "quarantined"}, 2},
			{"relay_quarantined_total", []string{"code", "too_large"}, 2},
			{"relay_lost_claims_total", nil, 0},
			{"relay_busy_total", nil, 0},
			{"relay_in_flight", nil, 0},
			{"relay_breaker_open", nil, 0},
			{"relay_route_paused", []string{"route", "ev.{stream}"}, 0},
			{"relay_publish_seconds", nil, 6},
			{"relay_delivery_lag_seconds", nil, 4},
		} {
			if v := r.metric(t, want.name, want.labels...); v != want.value {
				t.Errorf("%s%v is %v, want %v", want.name, want.labels, v, want.value)
			}
		}
		if v := r.metric(t, "relay_writer_lock_seconds"); v == 0 {
			t.Error("relay_writer_lock_seconds counts nothing")
		}
		r.broker.down()
		time.Sleep(2 * time.Second)
		if v := r.metric(t, "relay_breaker_open"); v != 1 {
			t.Errorf("relay_breaker_open is %v", v)
		}
		families, err := r.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != 14 {
			t.Errorf("%d metrics: a new one needs its line here and in the documentation", len(families))
		}
	})
}

func TestStreamLabelsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	stats := outbox.Stats{Now: time.Now()}
	for i := range 500 {
		name := fmt.Sprintf("s%03d", i)
		m.stream(name).result("accepted").Inc()
		stats.Streams = append(stats.Streams, outbox.StreamStats{
			Stream: name, Pending: int64(i), OldestPending: stats.Now.Add(-time.Duration(i) * time.Second),
		})
	}
	m.rows.set(&stats, time.Now())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{reg: reg}
	for _, f := range families {
		if n := len(f.GetMetric()); n > 3*(maxStreams+1) {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
	if v := r.metric(t, "relay_events", "stream", "s499", "state", "pending"); v != 499 {
		t.Errorf("the largest stream has %v rows", v)
	}
	sum := 449 * 450 / 2
	if v := r.metric(t, "relay_events", "stream", otherStream, "state", "pending"); v != float64(sum) {
		t.Errorf("the rest has %v rows, want %d", v, sum)
	}
	if v := r.metric(t, "relay_oldest_pending_seconds", "stream", otherStream); v < 449 || v > 450 {
		t.Errorf("the oldest of the rest is %v s old", v)
	}
	if v := r.metric(t, "relay_published_total", "stream", otherStream); v != 500-maxStreams {
		t.Errorf("the rest has %v publishes", v)
	}
}

func TestSnapshotTellsRateLagAndBacklog(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		if n := r.relay.Snapshot().Backlog; n > 0 {
			t.Errorf("backlog %d before the first count", n)
		}
		for range 600 {
			r.enqueue(t, "orders", 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(6 * time.Second) // for the next count, too
		s := r.relay.Snapshot()
		if s.Published != 600 || s.Rate < 7 || s.Rate > 12 {
			t.Errorf("%d published, %v a second", s.Published, s.Rate)
		}
		if n := len(s.Samples); n < 13 || n > 15 {
			t.Errorf("%d samples of a minute", n)
		}
		sum := 0
		for _, x := range s.Samples {
			sum += x.Accepted
		}
		if sum != 600 || s.Backlog != 0 || s.Counted == nil || s.Counted.Delivered != -1 {
			t.Errorf("samples sum up to %d, backlog %d, counted %+v", sum, s.Backlog, s.Counted)
		}
		r.broker.down()
		time.Sleep(time.Second)
		r.enqueue(t, "orders", 7)
		time.Sleep(30 * time.Second)
		s = r.relay.Snapshot()
		if s.Backlog != 7 || !s.BreakerOpen || !strings.Contains(s.BreakerWhy, errDown.Error()) || s.BreakerSince.IsZero() {
			t.Errorf("%+v", s)
		}
		if age := time.Since(s.Progress); age > time.Second {
			t.Errorf("no progress for %v while the broker is down", age)
		}
		time.Sleep(time.Hour)
		if s := r.relay.Snapshot(); s.Rate != 0 || len(s.Samples) != sampleCount {
			t.Errorf("rate %v and %d samples after an idle hour", s.Rate, len(s.Samples))
		}
	})
}

func TestLagQuantilesAreWithinAQuarter(t *testing.T) {
	var c lagCounts
	for range 10000 {
		c.add(time.Duration(rand.Int64N(int64(time.Second))))
	}
	for q, want := range map[float64]time.Duration{.5: 500 * time.Millisecond, .99: 990 * time.Millisecond} {
		if got := c.quantile(q); got < want*9/10 || got > want*5/4 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	c.add(24 * time.Hour)
	c.add(0)
}

// A failure that goes on for long is a few lines, whatever the number of rows.
func TestLogsStayShort(t *testing.T) {
	for _, tc := range []struct {
		name string
		a    answer
		most int
	}{
		{"broker down", answer{refuse: errDown}, 4},
		{"rows that always fail", answered(Failed, CodePublishTimeout), 10},
		{"rows of a missing stream", answered(Blocked, CodeNoStream), 4},
		{"rows that are all rejected", answered(Rejected, CodeTooLarge), 15},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, func(o *Options) {
				o.Poll, o.MaxAttempts, o.Batch, o.InFlight = 100*time.Millisecond, 0, 1000, 4000
			}, func(t *testing.T, r *rig) {
				r.broker.set(func(b *fakeBroker) { b.behave = func(*Message) answer { return tc.a } })
				r.enqueue(t, "orders", 500)
				time.Sleep(2 * time.Minute)
				if lines := r.log.lines(t); len(lines) > tc.most || len(lines) == 0 {
					t.Errorf("%d lines: %v", len(lines), lines)
				}
			})
		})
	}
}

func TestNotesSumUpWhatTheyDoNotName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		n := newNotes(zerolog.New(log))
		for row := range int64(100) {
			n.note(time.Now(), noteQuarantined, CodeTooLarge, row, "line\nbreak")
		}
		n.note(time.Now(), noteQuarantined, CodeInvalidSubject, 7, "another code is named again")
		n.flush(time.Now())
		if lines := log.lines(t); len(lines) != 6 {
			t.Fatalf("%d lines at first", len(lines))
		}
		time.Sleep(notePeriod)
		n.flush(time.Now())
		lines := log.lines(t)
		if last := lines[len(lines)-1]; len(lines) != 7 || last["rows"] != 95.0 || last["last_row"] != 99.0 {
			t.Errorf("%d lines, the last %v", len(lines), last)
		}
		time.Sleep(notePeriod)
		n.flush(time.Now())
		n.note(time.Now(), noteQuarantined, CodeTooLarge, 1, "after a quiet period")
		if lines := log.lines(t); len(lines) != 8 || len(n.seen) != 1 {
			t.Errorf("%d lines, %d codes kept", len(lines), len(n.seen))
		}
	})
}

func TestStoredRowsAreBounded(t *testing.T) {
	var s storedRows
	for row := range int64(3 * maxStored) {
		s.add(row)
		s.add(row)
	}
	if len(s.rows) != maxStored || len(s.order) != maxStored || s.has(0) || !s.has(3*maxStored-1) {
		t.Errorf("%d rows kept", len(s.rows))
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 2}
	for _, tc := range []struct {
		attempts int64
		want     time.Duration
	}{
		{0, time.Second}, {1, time.Second}, {2, 2 * time.Second}, {6, 32 * time.Second}, {7, time.Minute},
		{1000, time.Minute}, {1 << 62, time.Minute},
	} {
		if d := b.delay(tc.attempts); d != tc.want {
			t.Errorf("after %d attempts %v, want %v", tc.attempts, d, tc.want)
		}
	}
	b.Jitter = 0.2
	for range 1000 {
		d := b.delay(2)
		if d < 1600*time.Millisecond || d > 2401*time.Millisecond || d%time.Millisecond != 0 {
			t.Fatalf("delay %v", d)
		}
	}
	c := newCadence(Backoff{Initial: time.Second, Max: time.Hour, Multiplier: 10, Jitter: 1})
	for range 1000 {
		if d := c.next(); d < 0 || d > maxCadence {
			t.Fatalf("cadence %v", d)
		}
	}
	if b := (Backoff{Initial: time.Hour, Max: time.Second, Multiplier: 0.5, Jitter: 7}).withDefaults(); b.Max < b.Initial || b.Multiplier < 1 || b.Jitter > 1 {
		t.Errorf("%+v", b)
	}
}

func TestOldRowsArePruned(t *testing.T) {
	run(t, func(o *Options) {
		o.Retention = Retention{Delivered: time.Hour, Every: time.Minute, Batch: 10}
	}, func(t *testing.T, r *rig) {
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(m *Message) answer {
				if m.Subject == "ev.bad" {
					return answered(Rejected, CodeTooLarge)
				}
				return stored
			}
		})
		r.enqueue(t, "bad", 5)
		r.enqueue(t, "orders", 95)
		eventually(t, time.Second, "delivered", func() bool { return r.count(t, outbox.Delivered) == 95 })
		time.Sleep(58 * time.Minute)
		if n := r.count(t, outbox.Delivered); n != 95 {
			t.Errorf("%d rows left before their time", n)
		}
		time.Sleep(5 * time.Minute)
		if n, q := r.count(t, outbox.Delivered), r.count(t, outbox.Quarantined); n != 0 || q != 5 {
			t.Errorf("%d delivered and %d quarantined rows left", n, q)
		}
		r.relay.Reload(Settings{Retention: Retention{Quarantined: time.Hour, Every: time.Minute}})
		eventually(t, 5*time.Minute, "quarantined rows pruned", func() bool { return r.count(t, outbox.Quarantined) == 0 })
	})
}

func TestOptionsAreChecked(t *testing.T) {
	f := newFile(t, outbox.Options{})
	good := Options{Store: f.store, Handle: f.store.AllTenants(), Publisher: newBroker(), Routes: testRoutes(t)}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *Options){
		"no outbox":           func(o *Options) { o.Handle = nil },
		"no publisher":        func(o *Options) { o.Publisher = nil },
		"no routes":           func(o *Options) { o.Routes = nil },
		"negative batch":      func(o *Options) { o.Batch = -1 },
		"negative window":     func(o *Options) { o.InFlight = -1 },
		"negative bytes":      func(o *Options) { o.InFlightBytes = -1 },
		"lease too fine":      func(o *Options) { o.Lease = time.Second + time.Microsecond },
		"lease too long":      func(o *Options) { o.Lease = 25 * time.Hour },
		"negative poll":       func(o *Options) { o.Poll = -1 },
		"negative drain time": func(o *Options) { o.Drain = -1 },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
