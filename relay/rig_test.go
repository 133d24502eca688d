package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/outbox"
)

// rig is a relay over a real file and a fake broker.
type rig struct {
	*testFile
	broker *fakeBroker
	seam   *seam
	relay  *Relay
	log    *logBuffer
	reg    *prometheus.Registry
	o      Options

	cancel context.CancelFunc
	ended  chan error
}

func testRoutes(tb testing.TB, routes ...Route) *Routes {
	tb.Helper()
	if routes == nil {
		routes = []Route{{Subject: "ev.{stream}"}}
	}
	r, err := NewRoutes(routes)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// newRig makes a relay that has not started.
func newRig(tb testing.TB, change func(o *Options)) *rig {
	tb.Helper()
	r := &rig{broker: newBroker(), log: &logBuffer{}, reg: prometheus.NewRegistry()}
	r.testFile = newFile(tb, outbox.Options{OnBusy: func(d time.Duration) { r.relay.Busy(d) }})
	r.seam = &seam{Outbox: file{handle: r.store.AllTenants(), store: r.store}}
	r.o = Options{
		Outbox: r.seam, Publisher: r.broker, Routes: testRoutes(tb),
		Log: zerolog.New(r.log), Worker: "test", MaxAttempts: -1, Watch: noWatch,
		Metrics: NewMetrics(r.reg),
	}
	if change != nil {
		change(&r.o)
	}
	var err error
	if r.relay, err = New(r.o); err != nil {
		tb.Fatal(err)
	}
	return r
}

// start runs the relay until stop, or the end of the test.
func (r *rig) start(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.relay.Run(ctx) }()
	tb.Cleanup(func() { r.stop(tb) })
}

// stop ends the relay and returns what Run returned.
func (r *rig) stop(tb testing.TB) error {
	tb.Helper()
	r.cancel()
	if r.ended == nil {
		return nil
	}
	err := <-r.ended
	r.ended = nil
	return err
}

// run makes a rig and runs fn beside its relay, in a bubble of fake time.
func run(t *testing.T, change func(o *Options), fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		r.start(t)
		fn(t, r)
	})
}

// eventually waits for cond, at most for d of the test's time.
func eventually(tb testing.TB, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	end := time.Now().Add(d)
	for !cond() {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(min(d/100, 100*time.Millisecond))
	}
}

// metric reads a counter or gauge, or the count of a histogram; labels are name,
// value pairs. What does not exist is 0.
func (r *rig) metric(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				if !hasLabel(m.GetLabel(), labels[i], labels[i+1]) {
					continue next
				}
			}
			switch {
			case m.Counter != nil:
				return m.GetCounter().GetValue()
			case m.Gauge != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

func hasLabel[L interface {
	GetName() string
	GetValue() string
}](labels []L, name, value string) bool {
	return slices.ContainsFunc(labels, func(l L) bool { return l.GetName() == name && l.GetValue() == value })
}

// noWatch makes the relay poll.
func noWatch(string) (Watcher, error) { return nil, errors.New("no watch in this test") }

// logBuffer collects the relay's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines are the log lines, each decoded.
func (l *logBuffer) lines(tb testing.TB) []map[string]any {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range bytes.Lines(l.b.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			tb.Fatalf("log line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// with are the lines whose message is msg.
func (l *logBuffer) with(tb testing.TB, msg string) []map[string]any {
	tb.Helper()
	var out []map[string]any
	for _, m := range l.lines(tb) {
		if m["message"] == msg {
			out = append(out, m)
		}
	}
	return out
}
