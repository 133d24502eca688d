//go:build unix

package integration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/workload"
)

// A fault is one kind of trouble with one part of the system.
type fault struct {
	name string
	// target is the part in trouble. One part is in one trouble at a time;
	// different parts can be in trouble together.
	target string
	// most bounds how long the trouble lasts; the least is 50 ms.
	most time.Duration
	// begin causes it and returns what undoes it.
	begin func(w *world) (undo func())
}

// families are the faults to draw from, one file for each.
var families = [][]fault{relayFaults, brokerFaults, networkFaults, lockFaults}

// world is a stage in trouble: producers and relays work through a proxy while
// faults come and go.
type world struct {
	*stage
	proxy  *harness.Proxy
	relays []*harness.Relay
}

// step is one fault of a plan.
type step struct {
	fault
	begin, end time.Duration // since the start
}

func (s step) String() string {
	return fmt.Sprintf("%6.2fs +%.2fs %s: %s", s.begin.Seconds(), (s.end - s.begin).Seconds(), s.target, s.name)
}

// plan draws faults that begin within d. The same seed gives the same plan.
func plan(seed uint64, d time.Duration) []step {
	rng := rand.New(rand.NewPCG(seed, 0))
	all := slices.Concat(families...)
	free := map[string]time.Duration{} // when a target is out of trouble
	var steps []step
	for at := time.Duration(0); ; {
		at += 50*time.Millisecond + time.Duration(rng.Int64N(int64(600*time.Millisecond)))
		if at > d {
			return steps
		}
		f := all[rng.IntN(len(all))]
		end := at + 50*time.Millisecond + time.Duration(rng.Int64N(int64(f.most)))
		if free[f.target] > at {
			continue
		}
		free[f.target] = end + 100*time.Millisecond
		steps = append(steps, step{fault: f, begin: at, end: end})
	}
}

// TestSoak runs random faults over a flow of events. SOAK_SEED replays a plan,
// SOAK_DURATION lengthens it.
func TestSoak(t *testing.T) {
	harness.Heavy(t)
	seed := uint64(time.Now().UnixNano() % 1_000_000)
	if text := os.Getenv("SOAK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SOAK_SEED: %v", err)
		}
	}
	duration := 20 * time.Second
	if text := os.Getenv("SOAK_DURATION"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK_DURATION: %v", err)
		}
	}
	t.Logf("replay with SOAK_SEED=%d SOAK_DURATION=%v", seed, duration)
	soak(t, plan(seed, duration))
}

func soak(t *testing.T, steps []step) {
	w := newWorld(t)
	producers := make([]*harness.Producer, 2)
	for i := range producers {
		producers[i] = harness.StartProducer(t, workload.Options{
			DB: w.db.Path, Name: fmt.Sprintf("p%d", i), PerTx: 1 + 4*i, RollbackEvery: 7, Every: 5 * time.Millisecond,
			Tenants: []string{"acme", "globex"}, Streams: []string{"orders", "invoices"}, Payload: 200, Seed: uint64(i),
		})
	}
	w.play(steps)
	n := 0
	for _, p := range producers {
		n += p.Stop().Committed
	}
	w.db.WaitDelivered(n, 2*time.Minute)
	for _, r := range w.relays {
		r.Stop()
	}
	w.check(n, harness.Expect{})
	t.Logf("%d faults, %d events", len(steps), n)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{stage: newStage(t)}
	w.proxy = harness.StartProxy(t, w.nats.Port())
	for _, name := range []string{"relay-a", "relay-b"} {
		c := w.config()
		c.URLs = []string{w.proxy.URL()}
		c.Drain = 10 * time.Second // longer than any fault keeps the file from being written
		w.relays = append(w.relays, harness.StartRelay(t, name, c, w.faults))
	}
	return w
}

// play causes and undoes the faults at their times; all are undone when it returns.
func (w *world) play(steps []step) {
	w.t.Helper()
	type event struct {
		at   time.Duration
		do   func()
		what string
	}
	var events []event
	for _, s := range steps {
		var undo func()
		events = append(events,
			event{s.begin, func() { undo = s.fault.begin(w) }, s.String()},
			event{s.end, func() { undo() }, "end of " + s.name})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	start := time.Now()
	for _, e := range events {
		time.Sleep(time.Until(start.Add(e.at)))
		if testing.Verbose() {
			w.t.Log(e.what)
		}
		e.do()
	}
}

// The plan has to be the same for one seed, or a failure could not be replayed.
func TestPlanDependsOnTheSeedAlone(t *testing.T) {
	text := func(seed uint64) string { return fmt.Sprint(plan(seed, time.Minute)) }
	first := text(1)
	if again := text(1); again != first {
		t.Error("one seed gives two plans")
	}
	if text(2) == first {
		t.Error("two seeds give one plan")
	}
	used := map[string]bool{}
	for _, s := range plan(1, time.Hour) {
		used[s.target+s.name] = true
	}
	for _, f := range slices.Concat(families...) {
		if !used[f.target+f.name] {
			t.Errorf("an hour has no fault %s: %s", f.target, f.name)
		}
	}
}
