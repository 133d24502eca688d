//go:build unix

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/workload"
)

// Nothing is published into a connection that is down, so nothing comes twice
// when it returns, even with a duplicate window that is long over.
func TestNothingIsPublishedWhileDisconnected(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Second))
	c := s.config()
	c.MaxAttempts = 2
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Stop()
	n := s.waitProduced(s.produce(1, 20, 0))
	s.watchOutage(relay, n, 6*time.Second)
	if tried := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts > 1"); tried > 0 {
		t.Errorf("%d rows were tried more than once while nobody could take them", tried)
	}
	s.nats.Start()
	s.db.WaitDelivered(n, harness.Patience)
	relay.Stop()
	s.check(n, harness.Expect{})
}

// A broker that stands still, or dies with thousands of messages in flight,
// leaves no publish without an end and nothing behind in memory.
func TestStandstillUnderLoadLeavesNothingBehind(t *testing.T) {
	harness.Heavy(t)
	for _, kind := range []string{"frozen", "killed"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := stageWith(t, "", allEvents(2*time.Minute))
			c := s.config()
			c.Batch, c.MaxAttempts = 1000, 3
			c.Metrics = harness.FreeAddress(t)
			relay := harness.StartRelay(t, "relay", c, s.faults)
			harness.WaitReady(t, c.Metrics)
			quiet := harness.Metric(t, c.Metrics, "go_goroutines")
			if kind == "frozen" {
				s.faults.Record("broker frozen")
				s.nats.Freeze()
			} else {
				s.killBroker()
			}
			n := harness.StartProducer(t, workload.Options{DB: s.db.Path, Name: "load", Orders: 6000, PerTx: 200}).
				Wait(2 * time.Minute).Committed
			harness.Steadily(t, 8*time.Second, "nothing is quarantined, and goroutines stay few", func() (bool, string) {
				states := s.db.States()
				now := harness.Metric(t, c.Metrics, "go_goroutines")
				return states.Quarantined == 0 && states.Delivered == 0 && now < quiet+20, fmt.Sprintf("%v, %v goroutines", states, now)
			})
			if kind == "frozen" {
				s.nats.Thaw()
			} else {
				s.nats.Start()
			}
			s.db.WaitDelivered(n, time.Minute)
			harness.Eventually(t, harness.Patience, "nothing is in flight", func() (bool, string) {
				left := harness.Metric(t, c.Metrics, "relay_in_flight")
				return left == 0, fmt.Sprint(left)
			})
			relay.Stop()
			s.check(n, harness.Expect{})
		})
	}
}

// The library's default is to give up after 60 attempts: the relay goes far
// beyond that and is back within its longest backoff, as the same process, with one
// line for the loss and one for the return.
func TestConnectionOutlivesEveryOutage(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute))
	c := s.config()
	c.BackoffInitial, c.BackoffMax = 20*time.Millisecond, 40*time.Millisecond
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	pid := relay.PID()
	s.nats.Stop()
	n := s.waitProduced(s.produce(1, 100, 0))
	s.watchOutage(relay, n, 8*time.Second) // 200 attempts
	s.nats.Start()
	s.db.WaitDelivered(n, 5*time.Second)
	if !relay.Running() || relay.PID() != pid {
		t.Error("not the same process")
	}
	relay.Stop()
	lines := logLines(t, relay.Log())
	for text, want := range map[string]int{
		"connection to NATS lost": 1, "connected to NATS": 2, "broker unavailable": 1, "broker usable again": 1,
	} {
		if got := saying(lines, text); got != want {
			t.Errorf("%d lines %q, want %d:\n%s", got, text, want, relay.Log())
		}
	}
	s.check(n, harness.Expect{})
}

// Ten thousand waiting events and a broker that is away are a handful of lines,
// and from log, readiness and metrics alone a stranger learns what is wrong, since
// when, and how much waits.
func TestLongFailureIsAFewLines(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute))
	c := s.config()
	c.Metrics = harness.FreeAddress(t)
	c.Subject = "ev.{stream}"
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Stop()
	n := harness.StartProducer(t, workload.Options{DB: s.db.Path, Name: "load", Orders: 10000, PerTx: 500}).
		Wait(2 * time.Minute).Committed
	s.watchOutage(relay, n, 10*time.Second)
	harness.Eventually(t, 10*time.Second, "the signals tell of the outage and the backlog", func() (bool, string) {
		code, body := harness.Get(c.Metrics, "/readyz")
		_, metrics := harness.Get(c.Metrics, "/metrics")
		return code == 503 && strings.Contains(body, "broker unusable since") &&
			strings.Contains(metrics, "relay_breaker_open 1") &&
			strings.Contains(metrics, `relay_events{state="pending",stream="orders"} 10000`), body
	})
	if health, body := harness.Get(c.Metrics, "/healthz"); health != 200 {
		t.Errorf("/healthz: %d %s: an outage is no hang", health, body)
	}
	s.nats.Start()
	s.db.WaitDelivered(n, time.Minute)
	failing := s.insert(event{id: "fails for ever\n\"", stream: "no..where"}, event{id: "good"})
	s.waitState("delivered", "good")
	relay.Stop()
	lines := logLines(t, relay.Log())
	if len(lines) > 20 {
		t.Errorf("%d lines:\n%s", len(lines), relay.Log())
	}
	if strings.Contains(relay.Log(), `"cents"`) {
		t.Error("the log has payloads")
	}
	s.verify(harness.Expect{Also: failing, Quarantined: failing[:1]})
}

// One event that fails for ever, in a process whose other events go out, is no
// line at every attempt.
func TestEventThatAlwaysFailsIsAFewLines(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(time.Minute))
	failing := s.insert(event{id: "nobody takes it", stream: "nowhere"})
	c := s.config()
	c.Subject = "{stream}.x"
	c.BackoffInitial, c.BackoffMax = 20*time.Millisecond, 50*time.Millisecond
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.Eventually(t, harness.Patience, "it was tried fifty times", func() (bool, string) {
		d := s.delivery("nobody takes it")
		return d.attempts >= 50, fmt.Sprintf("%+v", d)
	})
	good := s.insert(event{id: "good", stream: "ev"})
	s.waitState("delivered", "good")
	relay.Stop()
	if lines := logLines(t, relay.Log()); len(lines) > 12 {
		t.Errorf("%d lines:\n%s", len(lines), relay.Log())
	}
	s.verify(harness.Expect{Also: append(failing, good...), Unfinished: true})
}
