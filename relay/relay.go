// Package relay moves events from an outbox to a broker: it claims leased
// batches, publishes them through a [Publisher], and settles each row by its
// fencing token.
//
// One goroutine, the loop, owns every claimed row and does every write. A second
// one, the sender, hands rows to the publisher. Results come back to the loop on a
// channel with room for all of them, so that neither ever waits for the other.
package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

	Worker        string        // 1..255 bytes; "" is "relay"
	Batch         int           // rows in one claim, 1..1000
	InFlight      int           // rows claimed and not yet settled
	InFlightBytes int64         // bytes of their events
	Lease         time.Duration // whole milliseconds, at most 24 h
	Poll          time.Duration // the longest time between two looks for due rows
	Drain         time.Duration // the longest time from the end of ctx to the end of Run
	MaxAttempts   int           // -1 here means the default; 0 never
	Backoff       Backoff
	Unrouted      Unrouted
	IsolatedIDs   bool // msg_id_scope = "isolated"
	Retention     Retention

	// Outbox replaces Store and Handle. Nil: those.
	Outbox Outbox
	// Watch replaces the file watch. Nil: the operating system's, or polling
	// where it has none.
	Watch func(path string) (Watcher, error)
}

// Backoff spaces retries and probes: Initial * Multiplier^(n-1), at most Max, +/- Jitter.
// The zero value means 1 s, 5 min, 2 and 0.2.
type Backoff struct {
	Initial    time.Duration
	Max        time.Duration
	Multiplier float64 // >= 1
	Jitter     float64 // 0..1
}

// Retention is the [retention] table; a zero age is off.
type Retention struct {
	Delivered, Quarantined time.Duration
	Every                  time.Duration // 0: one minute
	Batch                  int           // rows in one transaction, 1..1000; 0: 500
}

// Unrouted says what becomes of an event that no route matches.
type Unrouted uint8

const (
	UnroutedRetry Unrouted = iota
	UnroutedQuarantine
)

// Settings are what a running relay can change. Zero values get the defaults.
type Settings struct {
	Routes        *Routes // nil: the present ones
	Batch         int
	InFlight      int
	InFlightBytes int64
	MaxAttempts   int // -1 here means the default; 0 never
	Backoff       Backoff
	Unrouted      Unrouted
	Retention     Retention
}

const (
	defaultBatch         = 512
	defaultInFlight      = 2048
	defaultInFlightBytes = 64 << 20
	defaultLease         = 30 * time.Second
	defaultPoll          = 500 * time.Millisecond
	defaultDrain         = 20 * time.Second
	defaultMaxAttempts   = 20
	defaultPruneEvery    = time.Minute
	defaultPruneBatch    = 500

	maxBatch = 1000
	maxLease = 24 * time.Hour
)

// Relay is one running relay.
type Relay struct {
	o      Options
	db     Outbox
	base   time.Time // of the times kept as atomics
	status status

	progress  atomic.Int64 // since base: the loop's last turn, or its last wait for the writer slot
	idleUntil atomic.Int64 // since base: the loop has nothing to do until then; 0: it works
	inFlight  atomic.Int64
	busy      atomic.Int64 // time waited for the writer slot so far in this turn

	mu     sync.Mutex
	reload *Settings
	kick   chan struct{} // capacity 1: reload is set

	prune atomic.Pointer[Retention]
}

// New checks the options and opens nothing.
func New(o Options) (*Relay, error) {
	if o.Outbox == nil && (o.Store == nil || o.Handle == nil) {
		return nil, errors.New("relay: no outbox")
	}
	if o.Publisher == nil || o.Routes == nil {
		return nil, errors.New("relay: no publisher or no routes")
	}
	if o.Outbox == nil {
		o.Outbox = file{handle: o.Handle, store: o.Store}
	}
	if o.Watch == nil {
		o.Watch = watchFile
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if o.Worker == "" {
		o.Worker = "relay"
	}
	o.Lease = orDefault(o.Lease, defaultLease)
	o.Poll = orDefault(o.Poll, defaultPoll)
	o.Drain = orDefault(o.Drain, defaultDrain)
	o.apply(o.settings().withDefaults())
	if err := o.check(); err != nil {
		return nil, err
	}
	r := &Relay{o: o, db: o.Outbox, base: time.Now(), kick: make(chan struct{}, 1)}
	r.prune.Store(&o.Retention)
	r.status.init()
	return r, nil
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func (o *Options) settings() Settings {
	return Settings{
		Routes: o.Routes, Batch: o.Batch, InFlight: o.InFlight, InFlightBytes: o.InFlightBytes,
		MaxAttempts: o.MaxAttempts, Backoff: o.Backoff, Unrouted: o.Unrouted, Retention: o.Retention,
	}
}

func (o *Options) apply(s Settings) {
	o.Routes, o.Batch, o.InFlight, o.InFlightBytes = s.Routes, s.Batch, s.InFlight, s.InFlightBytes
	o.MaxAttempts, o.Backoff, o.Unrouted, o.Retention = s.MaxAttempts, s.Backoff, s.Unrouted, s.Retention
}

func (s Settings) withDefaults() Settings {
	s.Batch = min(orDefault(s.Batch, defaultBatch), maxBatch)
	s.InFlight = orDefault(s.InFlight, defaultInFlight)
	s.InFlightBytes = orDefault(s.InFlightBytes, defaultInFlightBytes)
	if s.MaxAttempts < 0 {
		s.MaxAttempts = defaultMaxAttempts
	}
	s.Backoff = s.Backoff.withDefaults()
	s.Retention.Every = orDefault(s.Retention.Every, defaultPruneEvery)
	s.Retention.Batch = orDefault(s.Retention.Batch, defaultPruneBatch)
	return s
}

func (o *Options) check() error {
	switch {
	case o.Batch < 1 || o.InFlight < 1 || o.InFlightBytes < 1:
		return fmt.Errorf("relay: batch %d, in_flight %d and in_flight_bytes %d must be positive",
			o.Batch, o.InFlight, o.InFlightBytes)
	case o.Lease < time.Millisecond || o.Lease > maxLease || o.Lease%time.Millisecond != 0:
		return fmt.Errorf("relay: lease %v is not whole milliseconds within 1ms..24h", o.Lease)
	case o.Poll < 0 || o.Drain < 0:
		return fmt.Errorf("relay: poll %v and drain %v must be positive", o.Poll, o.Drain)
	}
	return nil
}

// Run relays until ctx ends, then drains within Options.Drain and returns nil,
// or a *DrainError when rows had to be left claimed. Any other error says why the relay cannot
// go on (file replaced, damaged database). Call it once.
func (r *Relay) Run(ctx context.Context) error { return newLoop(r).run(ctx) }

// Reload replaces the settings between two turns; the last of several counts.
// Safe from any goroutine.
func (r *Relay) Reload(s Settings) {
	s = s.withDefaults()
	r.prune.Store(&s.Retention)
	r.mu.Lock()
	r.reload = &s
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *Relay) takeReload() *Settings {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.reload
	r.reload = nil
	return s
}

// Busy tells the relay that its outbox is waiting for the writer slot, and for
// how long so far: that is waiting, not hanging. It is for
// outbox.Options.OnBusy, never blocks, and is safe from any goroutine.
func (r *Relay) Busy(waited time.Duration) {
	r.busy.Store(int64(waited))
	r.progress.Store(int64(time.Since(r.base)))
}
