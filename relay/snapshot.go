package relay

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

const (
	maxQuarantines = 20
	// busyNotice is how long a turn may wait for the writer slot before the
	// database counts as unusable.
	busyNotice = 2 * time.Second
	// unroutedMemory is at least the longest delay of a row without a route, so that
	// each is seen once in it.
	unroutedMemory = maxCadence + 10*time.Second
)

// Snapshot is the relay's state for STATUS=, /healthz, /readyz and the status page.
type Snapshot struct {
	Progress     time.Time // when the loop last made progress or had nothing to do
	BreakerOpen  bool
	BreakerSince time.Time
	BreakerWhy   string
	Database     string // "" while usable, else what is wrong
	Routes       []RouteState
	Unrouted     int64 // tries of events without a route, lately; an event is tried more than once
	InFlight     int
	Published    uint64             // accepted since start
	Backlog      int64              // pending rows at the last count; -1 unknown
	OldestAge    time.Duration      // of the oldest pending row at the last count
	Quarantines  []RecentQuarantine // newest first, bounded

	// Counted is the last count of rows, nil before the first. Do not change it.
	Counted *outbox.Stats
	// Samples are the last ten minutes, oldest first, one for each SamplePeriod;
	// the last one is still growing.
	Samples []Sample
	// Rate is accepted events a second, LagP50 and LagP99 their lag, over the last
	// minute.
	Rate           float64
	LagP50, LagP99 time.Duration
}

// RouteState is one route as it runs.
type RouteState struct {
	Name   string // the route's label: its subject template
	Paused bool   // one of its subjects is, or all are
	Code   string
	Why    string
	Since  time.Time
}

// RecentQuarantine is for the status page.
type RecentQuarantine struct {
	At     time.Time
	Row    int64
	Stream string // "" where the row could not be decoded
	Code   string
	Reason string
}

// status is what Snapshot reads. The loop and the counter write it.
type status struct {
	mu          sync.Mutex
	snap        Snapshot
	lags        lagRing
	quarantines []RecentQuarantine // oldest first

	unrouted [2]int64 // tries of rows without a route in this and the previous period
	since    time.Time
}

func (s *status) init() {
	s.snap.Backlog = -1
	s.lags.roll(time.Now())
}

// published counts an accepted event.
func (s *status) published(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Published++
	s.lags.add(lag)
}

func (s *status) quarantined(q RecentQuarantine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.quarantines) == maxQuarantines {
		s.quarantines = slices.Delete(s.quarantines, 0, 1)
	}
	s.quarantines = append(s.quarantines, q)
}

func (s *status) sawUnrouted(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ageUnrouted(now)
	s.unrouted[0]++
}

// ageUnrouted turns the periods over.
func (s *status) ageUnrouted(now time.Time) {
	switch age := now.Sub(s.since); {
	case age >= 2*unroutedMemory:
		s.unrouted = [2]int64{}
		s.since = now
	case age >= unroutedMemory:
		s.unrouted = [2]int64{0, s.unrouted[0]}
		s.since = now
	}
}

// database records what is wrong with it, "" for nothing.
func (s *status) database(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Database = why
}

// counted takes in a count of the rows.
func (s *status) counted(st *outbox.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Counted, s.snap.Backlog, s.snap.OldestAge = st, st.Pending, 0
	if !st.OldestPending.IsZero() {
		s.snap.OldestAge = max(st.Now.Sub(st.OldestPending), 0)
	}
}

func (s *status) backlog() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap.Backlog
}

// update copies the loop's state, and that of the gauges.
func (s *status) update(l *loop, now time.Time) {
	routes := s.snap.Routes // the loop alone writes it
	if l.pauses.changed {
		l.pauses.changed = false
		routes = l.routeStates()
		l.m.routes(routes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snap.Routes = routes
	s.snap.BreakerOpen = l.breaker.state != closed
	s.snap.BreakerSince, s.snap.BreakerWhy = time.Time{}, ""
	if s.snap.BreakerOpen {
		s.snap.BreakerSince = l.breaker.since
		s.snap.BreakerWhy = l.breaker.why
		if !strings.HasPrefix(s.snap.BreakerWhy, string(l.breaker.code)) {
			s.snap.BreakerWhy = string(l.breaker.code) + ": " + s.snap.BreakerWhy
		}
	}
	s.lags.backlog(s.snap.Backlog)
	s.lags.roll(now)
	s.ageUnrouted(now)
}

func (l *loop) routeStates() []RouteState {
	states := make([]RouteState, l.o.Routes.Len())
	for i := range states {
		states[i].Name = l.routeLabel(i)
		if r := l.pauses.routes[i]; r != nil {
			states[i] = RouteState{Name: states[i].Name, Paused: true, Code: string(r.code), Why: r.why, Since: r.since}
		}
	}
	return states
}

// Snapshot reads the current state. Safe from any goroutine.
func (r *Relay) Snapshot() Snapshot {
	now := time.Now()
	s := &r.status
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snap
	snap.Progress, snap.InFlight = r.lastProgress(now), int(r.inFlight.Load())
	if waited := time.Duration(r.busy.Load()); snap.Database == "" && waited >= busyNotice {
		snap.Database = fmt.Sprintf("busy: another process has held the writer slot for %v", waited.Round(time.Second))
	}
	s.ageUnrouted(now)
	snap.Unrouted = max(s.unrouted[0], s.unrouted[1])
	snap.Routes = slices.Clone(snap.Routes)
	snap.Quarantines = slices.Clone(s.quarantines)
	slices.Reverse(snap.Quarantines)
	s.lags.roll(now)
	snap.Samples = s.lags.samples()
	snap.Rate, snap.LagP50, snap.LagP99 = s.lags.lastMinute(now)
	return snap
}

// idleGrace is how late the loop may be from a wait before it counts as hanging.
const idleGrace = time.Second

// lastProgress is now while the loop rightly waits.
func (r *Relay) lastProgress(now time.Time) time.Time {
	idle := time.Duration(r.idleUntil.Load())
	if idle != 0 && now.Sub(r.base) <= idle+idleGrace {
		return now
	}
	return r.base.Add(time.Duration(r.progress.Load()))
}
