// Package jetstream publishes outbox events to NATS JetStream as CloudEvents.
package jetstream

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/relay"
)

// Options of a Publisher, from the [nats] table.
type Options struct {
	URLs           []string
	Name           string
	Creds          string // file
	NKey           string // seed file
	User           string
	PasswordFile   string
	TokenFile      string
	PublishTimeout time.Duration
	Domain         string
	APIPrefix      string
	InboxPrefix    string
	Structured     bool // mode = "structured"
	RoutingHeaders bool
	TraceHeaders   bool
	TLS            TLS
	Backoff        relay.Backoff // reconnects; never more than 30 s apart
	Log            zerolog.Logger
}

// TLS is the [nats.tls] table.
type TLS struct {
	CA, Cert, Key  string
	HandshakeFirst bool
}

// Publisher implements relay.Publisher.
type Publisher struct{}

// Connect starts connecting and returns at once: a broker that is down is not
// an error, a bad option (unreadable file, bad URL) is.
func Connect(o Options) (*Publisher, error) { panic("todo") }

// Close ends the connection.
func (p *Publisher) Close() {}

// SetRoutes tells the publisher which subjects will be used, so that it can
// look up the streams behind them.
func (p *Publisher) SetRoutes(r *relay.Routes) {}

func (p *Publisher) Publish(ctx context.Context, m *relay.Message, done chan<- relay.Result) error {
	panic("todo")
}
func (p *Publisher) Flush() error                    { panic("todo") }
func (p *Publisher) Usable() error                   { panic("todo") }
func (p *Publisher) Probe(ctx context.Context) error { panic("todo") }

// Severity of a Finding.
type Severity string

const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityUnknown Severity = "unknown"
)

// Finding is one result of the preflight.
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // what it is about: "route ev.{stream}", "stream EVENTS", …
	Problem  string   `json:"problem"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix"`
}

// PreflightOptions are what the settings of a stream are compared with.
type PreflightOptions struct {
	Lease       time.Duration
	Backoff     relay.Backoff
	MaxAttempts int
	MaxEvent    int
	Isolated    bool
}

// Preflight checks the broker, permissions, a stream behind every route and the
// settings that lose or double events. ctx bounds it.
func (p *Publisher) Preflight(ctx context.Context, routes *relay.Routes, o PreflightOptions) []Finding {
	panic("todo")
}
