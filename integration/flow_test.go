//go:build unix

package integration

import (
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// The short form of everything: it runs under -short too.
func TestCommittedEventsArriveOnceAndRolledBackOnesNever(t *testing.T) {
	s := newStage(t)
	relay := s.startRelay("relay")
	n := s.waitProduced(s.produce(1, 200, 0))
	s.db.WaitDelivered(n, harness.Patience)
	relay.Stop()
	s.check(n, harness.Expect{})
}

func TestTenThousandEventsFromThreeProducers(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	n := s.waitProduced(s.produce(3, 3334, 0))
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	if n < 10_000 {
		t.Errorf("%d events committed, want at least 10,000", n)
	}
	s.check(n, harness.Expect{})
}

func TestTwoRelaysShareOneFile(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	// One after the other on an empty file, then both at once on a backlog.
	a, b := s.startRelay("relay-a"), s.startRelay("relay-b")
	n := s.waitProduced(s.produce(3, 2000, 0))
	s.db.WaitDelivered(n, time.Minute)
	a.Stop()
	b.Stop()
	s.check(n, harness.Expect{})
	if extra := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts > 1"); extra > 0 {
		t.Errorf("%d rows were claimed more than once though nothing failed", extra)
	}
}

func TestBacklogWrittenBeforeTheRelayStarts(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	n := s.waitProduced(s.produce(2, 1500, 0))
	relay := s.startRelay("relay")
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
}

func TestStructuredModeCarriesTheSameEvents(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	c := s.config()
	c.Mode = "structured"
	relay := harness.StartRelay(t, "relay", c, s.faults)
	n := s.waitProduced(s.produce(1, 300, 0))
	s.db.WaitDelivered(n, harness.Patience)
	relay.Stop()
	s.check(n, harness.Expect{})
}
