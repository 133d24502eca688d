//go:build unix

package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/rs/zerolog/log"

	"github.com/outbox-relay/relay/integration/natstest"
)

// Toxics log each interruption to the library's global logger, between the test's lines.
func init() { log.Logger = zerolog.Nop() }

// Proxy is a TCP proxy in front of a broker, for faults of the network alone.
type Proxy struct {
	tb    testing.TB
	proxy *toxiproxy.Proxy
}

// StartProxy starts a proxy for the broker at port on loopback. The test's
// cleanup ends it.
func StartProxy(tb testing.TB, port int) *Proxy {
	tb.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &Proxy{tb: tb, proxy: toxiproxy.NewProxy(server, "nats",
		fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(tb)), fmt.Sprintf("127.0.0.1:%d", port))}
	p.Mend()
	tb.Cleanup(p.Cut)
	return p
}

// URL is the proxy's address for clients.
func (p *Proxy) URL() string { return "nats://" + p.proxy.Listen }

// Cut closes every connection and refuses new ones until Mend.
func (p *Proxy) Cut() { p.proxy.Stop() }

// Mend accepts connections again.
func (p *Proxy) Mend() {
	p.tb.Helper()
	if err := p.proxy.Start(); err != nil {
		p.tb.Fatalf("harness: proxy: %v", err)
	}
}

// Trouble is one toxiproxy toxic.
type Trouble struct {
	Type       string // "latency", "timeout", "bandwidth", "limit_data", "reset_peer", "slicer"
	Stream     string // "upstream": what the relay sends; "downstream": what it gets
	Attributes string // JSON members, as toxiproxy documents them
}

// Add applies t to open and new connections until the returned function is
// called.
func (p *Proxy) Add(t Trouble) (remove func()) {
	p.tb.Helper()
	text := fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%s}}`, t.Type, t.Stream, t.Attributes)
	toxic, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(text))
	if err != nil {
		p.tb.Fatalf("harness: toxic %s: %v", text, err)
	}
	return func() {
		p.tb.Helper()
		if err := p.proxy.Toxics.RemoveToxic(context.Background(), toxic.Name); err != nil {
			p.tb.Fatalf("harness: removing %s: %v", toxic.Name, err)
		}
	}
}
