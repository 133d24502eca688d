// Package relay moves events from an outbox to a broker: it claims leased
// batches, publishes them through a [Publisher], and settles each row by its
// fencing token.
package relay

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/outbox"
)

// Options of a relay. Zero values get the defaults of config.example.toml.
type Options struct {
	Store     *outbox.Store
	Handle    *outbox.Handle
	Publisher Publisher
	Routes    *Routes
	Log       zerolog.Logger
	Metrics   *Metrics // nil: not measured

	Worker        string
	Batch         int
	InFlight      int
	InFlightBytes int64
	Lease         time.Duration
	Poll          time.Duration
	Drain         time.Duration
	MaxAttempts   int // -1 here means the default; 0 never
	Backoff       Backoff
	Unrouted      Unrouted
	IsolatedIDs   bool // msg_id_scope = "isolated"
	Retention     Retention
}

// Backoff spaces retries and probes: Initial * Multiplier^(n-1), at most Max, +/- Jitter.
type Backoff struct {
	Initial    time.Duration
	Max        time.Duration
	Multiplier float64
	Jitter     float64 // 0..1
}

// Retention is the [retention] table; a zero age is off.
type Retention struct {
	Delivered, Quarantined, Every time.Duration
	Batch                         int
}

// Unrouted says what becomes of an event that no route matches.
type Unrouted uint8

const (
	UnroutedRetry Unrouted = iota
	UnroutedQuarantine
)

// Relay is one running relay.
type Relay struct{ o Options }

// New checks the options and opens nothing.
func New(o Options) (*Relay, error) { panic("todo") }

// Run relays until ctx ends, then drains within Options.Drain and returns nil.
// The error says why the relay cannot go on (file replaced, damaged database).
func (r *Relay) Run(ctx context.Context) error { panic("todo") }

// Settings are what a running relay can change.
type Settings struct {
	Routes        *Routes
	Batch         int
	InFlight      int
	InFlightBytes int64
	MaxAttempts   int
	Backoff       Backoff
	Unrouted      Unrouted
	Retention     Retention
}

// Reload replaces the settings between two turns.
func (r *Relay) Reload(s Settings) { panic("todo") }

// Snapshot is the relay's state for STATUS=, /healthz, /readyz and the status page.
type Snapshot struct {
	Progress     time.Time // when the loop last made progress or had nothing to do
	BreakerOpen  bool
	BreakerSince time.Time
	BreakerWhy   string
	Database     string // "" while usable, else what is wrong
	Routes       []RouteState
	Unrouted     int64 // events waiting for a route, as far as seen
	InFlight     int
	Published    uint64 // accepted since start
	Backlog      int64  // pending rows at the last count; -1 unknown
	OldestAge    time.Duration
	Quarantines  []RecentQuarantine // newest first, bounded
}

// RouteState is one route as it runs.
type RouteState struct {
	Name   string // the route's label: its subject template
	Paused bool
	Code   string
	Why    string
	Since  time.Time
}

// RecentQuarantine is for the status page.
type RecentQuarantine struct {
	At     time.Time
	Row    int64
	Stream string
	Code   string
	Reason string
}

// Snapshot reads the current state. Safe from any goroutine.
func (r *Relay) Snapshot() Snapshot { panic("todo") }
