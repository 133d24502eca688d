//go:build unix

package integration

import (
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// A broker that is down says nothing about the events: they wait.
func TestOutageLeavesEveryRowPending(t *testing.T) {
	harness.Heavy(t)
	s := prepareStage(t) // never up since boot
	c := s.config()
	c.MaxAttempts = 3
	relay := harness.StartRelay(t, "relay", c, s.faults)
	n := s.waitProduced(s.produce(1, 500, 0))
	s.watchOutage(relay, n, 5*time.Second)

	s.nats.Start()
	s.createStream()
	s.db.WaitDelivered(n, time.Minute)

	s.killBroker()
	more := s.waitProduced(s.produce(1, 500, 0))
	s.watchOutage(relay, more, 5*time.Second)
	s.nats.Start()
	s.db.WaitDelivered(n+more, time.Minute)
	relay.Stop()
	s.check(n+more, harness.Expect{})
	if worn := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts > 2"); worn > 0 {
		t.Errorf("the outages cost %d rows more than one attempt", worn)
	}
}

// watchOutage wants n rows to stay undelivered, none of them quarantined, and
// the relay to stay up for d.
func (s *stage) watchOutage(relay *harness.Relay, n int, d time.Duration) {
	s.t.Helper()
	harness.Steadily(s.t, d, "the relay waits and nothing is quarantined", func() (bool, string) {
		states := s.db.States()
		return relay.Running() && states.Quarantined == 0 && states.Pending+states.Claimed == n, states.String()
	})
	harness.Eventually(s.t, harness.Patience, "every row is pending", func() (bool, string) {
		states := s.db.States()
		return states.Pending == n, states.String()
	})
}

// A stopped broker keeps its connections open and answers nothing.
func TestFrozenBrokerLosesNothing(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	producers := s.produce(2, 1000, 2*time.Millisecond)
	s.waitDeliveredAtLeast(200)
	s.faults.Record("broker frozen")
	s.nats.Freeze()
	n := s.waitProduced(producers)
	harness.Steadily(t, 5*time.Second, "nothing is quarantined", func() (bool, string) {
		states := s.db.States()
		return relay.Running() && states.Quarantined == 0, states.String()
	})
	s.nats.Thaw()
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
}
