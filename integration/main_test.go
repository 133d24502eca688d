//go:build unix

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/integration/workload"
)

func TestMain(m *testing.M) { harness.Main(m) }

// stage is what most scenarios need: a broker with one stream for every event,
// a database, and the record of the faults caused.
type stage struct {
	t      *testing.T
	nats   *natstest.Server
	db     *harness.Database
	faults *harness.Journal
	rounds int             // of producers, for names of their own
	held   *harness.Locker // of the writer lock, where a test says so
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := prepareStage(t)
	s.nats.Start()
	s.createStream()
	return s
}

// prepareStage leaves the broker down.
func prepareStage(t *testing.T) *stage {
	t.Helper()
	return &stage{
		t:      t,
		nats:   natstest.Prepare(t, natstest.Options{}),
		db:     harness.NewDatabase(t),
		faults: &harness.Journal{},
	}
}

func (s *stage) createStream() {
	s.t.Helper()
	_, err := s.nats.JetStream().CreateStream(s.t.Context(), jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{"ev.>"}, Duplicates: 2 * time.Minute,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) config() harness.Config {
	return harness.Config{DB: s.db.Path, URLs: []string{s.nats.URL()}}
}

func (s *stage) startRelay(name string) *harness.Relay {
	s.t.Helper()
	return harness.StartRelay(s.t, name, s.config(), s.faults)
}

// killBroker ends the broker as a power cut of its process would.
func (s *stage) killBroker() {
	s.faults.Record("broker killed")
	s.nats.Kill()
}

// produce starts n producers that commit orders each (0: until they are killed),
// with rollbacks between.
func (s *stage) produce(n, orders int, every time.Duration) []*harness.Producer {
	s.t.Helper()
	s.rounds++
	producers := make([]*harness.Producer, n)
	for i := range producers {
		producers[i] = harness.StartProducer(s.t, workload.Options{
			DB: s.db.Path, Name: fmt.Sprintf("p%d.%d", s.rounds, i), Orders: orders, PerTx: 1 + 3*i, RollbackEvery: 5 + i,
			Every: every, Tenants: []string{"acme", "globex"}, Streams: []string{"orders", "invoices.eu"},
			Payload: 100, Seed: uint64(i),
		})
	}
	return producers
}

// waitProduced waits for every producer and returns how many orders are committed.
func (s *stage) waitProduced(producers []*harness.Producer) int {
	s.t.Helper()
	committed := 0
	for _, p := range producers {
		r := p.Wait(2 * time.Minute)
		committed += r.Committed
		if r.RolledBack == 0 {
			s.t.Error("a producer rolled nothing back")
		}
		if r.Busy > 0 {
			s.t.Errorf("a producer found the file locked %d times for longer than its busy timeout", r.Busy)
		}
	}
	return committed
}

// waitDeliveredAtLeast waits until the relays have got through n rows.
func (s *stage) waitDeliveredAtLeast(n int) {
	s.t.Helper()
	harness.Eventually(s.t, harness.Patience, fmt.Sprintf("%d rows delivered", n), func() (bool, string) {
		states := s.db.States()
		return states.Delivered >= n, states.String()
	})
}

// check runs the checker and wants each of n events stored exactly once.
func (s *stage) check(n int, e harness.Expect) {
	s.t.Helper()
	e.Faults = s.faults
	sum := harness.Check(s.t, s.db, s.nats.URL(), e)
	if sum.Committed != n || sum.Stored != n || sum.Duplicates != 0 {
		s.t.Errorf("%d committed, %d stored, %d duplicates; want %d, %d, 0",
			sum.Committed, sum.Stored, sum.Duplicates, n, n)
	}
}
