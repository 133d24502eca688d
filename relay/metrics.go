package relay

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-relay/relay/outbox"
)

// maxStreams bounds the stream labels of one metric. What is beyond is otherStream.
const (
	maxStreams  = 50
	otherStream = "other"
)

// resultUnrouted is the result label of events that no route matches; the others
// are names of classes.
const resultUnrouted = "unrouted"

// Metrics are the relay's Prometheus collectors. Labels are bounded: streams by
// count, everything else by configuration or by the code itself.
type Metrics struct {
	published   *prometheus.CounterVec
	duplicates  prometheus.Counter
	settled     [outbox.Quarantine + 1]prometheus.Counter
	quarantined *prometheus.CounterVec
	lostClaims  prometheus.Counter
	busy        prometheus.Counter
	inFlight    prometheus.Gauge
	breakerOpen prometheus.Gauge
	routePaused *prometheus.GaugeVec
	publishTime prometheus.Histogram
	lag         prometheus.Histogram
	lockTime    prometheus.Histogram
	rows        *rowCollector

	streams map[string]*streamCounters // the loop's
}

// streamCounters are the counters of one stream by result.
type streamCounters struct {
	vec    *prometheus.CounterVec
	label  string
	byName map[string]prometheus.Counter
}

func (s *streamCounters) result(name string) prometheus.Counter {
	c, ok := s.byName[name]
	if !ok {
		c = s.vec.WithLabelValues(s.label, name)
		s.byName[name] = c
	}
	return c
}

var settledOutcomes = map[outbox.Action]string{
	outbox.Ack: "acked", outbox.Retry: "retried", outbox.Release: "released",
	outbox.Renew: "renewed", outbox.Quarantine: "quarantined",
}

// NewMetrics registers the collectors with reg. They serve one Relay. It panics
// if reg has any of them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	settled := prometheus.NewCounterVec(counter("relay_settled_total",
		"Claims settled, by outcome: acked, retried, released, renewed or quarantined."), []string{"outcome"})
	m := &Metrics{
		published: prometheus.NewCounterVec(counter("relay_published_total",
			"Publishes by stream and result: accepted, rejected, failed, blocked, unavailable or unrouted."),
			[]string{"stream", "result"}),
		duplicates: prometheus.NewCounter(counter("relay_duplicates_total",
			"Accepted publishes that the broker had stored before.")),
		quarantined: prometheus.NewCounterVec(counter("relay_quarantined_total",
			"Events quarantined, by code."), []string{"code"}),
		lostClaims: prometheus.NewCounter(counter("relay_lost_claims_total",
			"Claims that were no longer ours when they were to be settled or renewed.")),
		busy: prometheus.NewCounter(counter("relay_busy_total",
			"Turns given up because another process kept the writer slot through every retry.")),
		inFlight: prometheus.NewGauge(gauge("relay_in_flight",
			"Events claimed and not yet settled.")),
		breakerOpen: prometheus.NewGauge(gauge("relay_breaker_open",
			"1 while the broker cannot be used and nothing is claimed.")),
		routePaused: prometheus.NewGaugeVec(gauge("relay_route_paused",
			"1 while a subject of the route is paused because the broker does not store it."), []string{"route"}),
		publishTime: prometheus.NewHistogram(histogram("relay_publish_seconds",
			"From handing an event to the publisher to its result.")),
		lag: prometheus.NewHistogram(histogram("relay_delivery_lag_seconds",
			"From enqueue to the broker's acknowledgement.")),
		lockTime: prometheus.NewHistogram(histogram("relay_writer_lock_seconds",
			"How long a turn held the database's writer slot.")),
		rows:    newRowCollector(),
		streams: make(map[string]*streamCounters),
	}
	for action, name := range settledOutcomes {
		m.settled[action] = settled.WithLabelValues(name)
	}
	reg.MustRegister(settled, m.published, m.duplicates, m.quarantined, m.lostClaims, m.busy, m.inFlight,
		m.breakerOpen, m.routePaused, m.publishTime, m.lag, m.lockTime, m.rows)
	return m
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Name: name, Help: help}
}

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Name: name, Help: help}
}

// histogram has buckets from a quarter of a millisecond to half an hour: a lag
// can be anything from a wake-up to an outage.
func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Name: name, Help: help, Buckets: []float64{
		.00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
	}}
}

// stream finds the counters of a stream. The loop alone calls it.
func (m *Metrics) stream(name string) *streamCounters {
	if s, ok := m.streams[name]; ok {
		return s
	}
	if len(m.streams) >= maxStreams {
		name = otherStream
		if s, ok := m.streams[name]; ok {
			return s
		}
	}
	s := &streamCounters{vec: m.published, label: name, byName: make(map[string]prometheus.Counter)}
	m.streams[name] = s
	return s
}

// routes sets the paused gauge of every route.
func (m *Metrics) routes(states []RouteState) {
	m.routePaused.Reset()
	for _, r := range states {
		g := m.routePaused.WithLabelValues(r.Name) // several routes can have one template
		if r.Paused {
			g.Set(1)
		}
	}
}

// rowCollector gives the row counts of the last count.
type rowCollector struct {
	events, oldest *prometheus.Desc

	mu      sync.Mutex
	at      time.Time // of the count; zero: none yet
	streams []streamRows
}

type streamRows struct {
	label                         string
	pending, claimed, quarantined int64
	oldest                        time.Duration // age of the oldest pending row at the count; < 0: none
}

func newRowCollector() *rowCollector {
	return &rowCollector{
		events: prometheus.NewDesc("relay_events",
			"Rows in the outbox by state and stream, at the last count; the largest streams, the rest as other.",
			[]string{"state", "stream"}, nil),
		oldest: prometheus.NewDesc("relay_oldest_pending_seconds",
			"Age of the oldest pending event of a stream.", []string{"stream"}, nil),
	}
}

// set takes in a count made at now.
func (c *rowCollector) set(s *outbox.Stats, now time.Time) {
	streams := slices.Clone(s.Streams)
	slices.SortFunc(streams, func(a, b outbox.StreamStats) int {
		return cmp.Or(cmp.Compare(b.Pending+b.Claimed+b.Quarantined, a.Pending+a.Claimed+a.Quarantined),
			cmp.Compare(a.Stream, b.Stream))
	})
	var out []streamRows
	rest := streamRows{label: otherStream, oldest: -1, pending: s.Pending, claimed: s.Claimed, quarantined: s.Quarantined}
	for _, st := range streams {
		rest.pending = max(rest.pending-st.Pending, 0) // what is left has no line of its own in s
		rest.claimed = max(rest.claimed-st.Claimed, 0)
		rest.quarantined = max(rest.quarantined-st.Quarantined, 0)
	}
	for _, st := range streams {
		r := &rest
		if len(out) < maxStreams && st.Stream != otherStream {
			out = append(out, streamRows{label: st.Stream, oldest: -1})
			r = &out[len(out)-1]
		}
		r.pending += st.Pending
		r.claimed += st.Claimed
		r.quarantined += st.Quarantined
		if !st.OldestPending.IsZero() {
			r.oldest = max(r.oldest, s.Now.Sub(st.OldestPending), 0)
		}
	}
	if rest != (streamRows{label: otherStream, oldest: -1}) {
		out = append(out, rest)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.streams = now, out
}

// Describe implements prometheus.Collector.
func (c *rowCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.events
	ch <- c.oldest
}

// Collect implements prometheus.Collector. Ages go on growing between counts.
func (c *rowCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := time.Since(c.at)
	for _, s := range c.streams {
		for state, n := range map[outbox.State]int64{
			outbox.Pending: s.pending, outbox.InClaim: s.claimed, outbox.Quarantined: s.quarantined,
		} {
			ch <- prometheus.MustNewConstMetric(c.events, prometheus.GaugeValue, float64(n), string(state), s.label)
		}
		age := 0.0
		if s.oldest >= 0 {
			age = (s.oldest + since).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age, s.label)
	}
}
