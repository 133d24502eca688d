//go:build unix

package integration

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

func TestKilledRelayLosesNothing(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	producers := s.produce(3, 2000, 2*time.Millisecond)
	for i := range 6 {
		s.waitDeliveredAtLeast(400 * (i + 1))
		relay.Kill()
		relay.Start()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
}

// A claim of a dead relay is taken over by one that runs, without a restart.
func TestLeasesOfADeadRelayAreTakenOver(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	victim := s.startRelay("victim")
	producers := s.produce(2, 2000, time.Millisecond)
	s.waitDeliveredAtLeast(200)
	s.nats.Freeze() // rows stay claimed and unanswered
	s.waitClaimed(1)
	victim.Kill()
	s.nats.Thaw()
	heir := s.startRelay("heir")
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	heir.Stop()
	s.check(n, harness.Expect{})
}

func TestKilledBrokerLosesNothing(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	pid := relay.PID()
	producers := s.produce(3, 2000, 2*time.Millisecond)
	for i := range 3 {
		s.waitDeliveredAtLeast(600 * (i + 1))
		s.killBroker()
		s.nats.Start()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	if !relay.Running() || relay.PID() != pid {
		t.Error("the relay did not outlive the broker")
	}
	relay.Stop()
	s.check(n, harness.Expect{})
}

// Redeploys: whatever the moment, SIGTERM drains, exits 0 and leaves no claim.
func TestTerminatedRelayLeavesNoRowClaimed(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	producers := s.produce(3, 2000, 2*time.Millisecond)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 6 {
		s.waitDeliveredAtLeast(300*(i+1) + rng.IntN(200))
		relay.Stop()
		if states := s.db.States(); states.Claimed > 0 {
			t.Errorf("after SIGTERM: %v", states)
		}
		relay.Start()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
	if failed := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE last_failure_code IS NOT NULL"); failed > 0 {
		t.Errorf("%d rows carry a failure though only restarts happened", failed)
	}
}

func TestKilledProducerLeavesOnlyWholeTransactions(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	for i := range 3 {
		producers := s.produce(3, 0, 0)
		s.waitDeliveredAtLeast(300 * (i + 1))
		for _, p := range producers {
			p.Kill()
		}
	}
	n := s.db.Int("SELECT count(*) FROM shop_orders")
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
}
