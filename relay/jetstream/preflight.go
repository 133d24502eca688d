package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// Severity of a Finding.
type Severity string

const (
	SeverityError   Severity = "error"   // events cannot be delivered
	SeverityWarning Severity = "warning" // events can be lost, doubled or delayed
	SeverityUnknown Severity = "unknown" // the server refuses to say
)

// Finding is one result of the preflight.
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // what it is about: "route ev.{stream}", "stream EVENTS", …
	Problem  string   `json:"problem"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix"`
}

// PreflightOptions are what the settings of a stream are compared with. A zero
// value leaves its comparison out.
type PreflightOptions struct {
	Lease       time.Duration
	Backoff     relay.Backoff
	MaxAttempts int
	MaxEvent    int // bytes
	Isolated    bool
}

// headerAllowance is what a message's headers take beside an event of the
// maximum size, in round figures: its attributes count towards that already.
const headerAllowance = 1 << 10

// preflight collects findings.
type preflight struct {
	p        *Publisher
	routes   *relay.Routes
	o        PreflightOptions
	findings []Finding
	now      func() time.Time
}

func (c *preflight) add(severity Severity, subject, problem, why, fix string) {
	c.findings = append(c.findings, Finding{severity, subject, problem, why, fix})
}

// Preflight checks the broker, permissions, a stream behind every route and the
// settings that lose or double events. ctx bounds it. It publishes nothing and
// changes nothing. No finding is a good result.
func (p *Publisher) Preflight(ctx context.Context, routes *relay.Routes, o PreflightOptions) []Finding {
	c := &preflight{p: p, routes: routes, o: o, now: time.Now}
	c.checkShadowed()
	if !c.checkConnection(ctx) {
		return c.findings
	}
	c.checkMaxPayload()
	c.checkPermissions(ctx)
	if c.checkJetStream(ctx) {
		c.checkRoutes(ctx)
	}
	return c.findings
}

func routeName(r relay.Route) string { return "route " + r.Subject }

// checkShadowed finds routes that an earlier one leaves nothing for.
func (c *preflight) checkShadowed() {
	all := func(pattern string) bool { return pattern == "" || pattern == "*" }
	for i := range c.routes.Len() - 1 {
		if r := c.routes.At(i); all(r.Stream) && all(r.Tenant) {
			for j := i + 1; j < c.routes.Len(); j++ {
				c.add(SeverityWarning, routeName(c.routes.At(j)), "is never reached",
					fmt.Sprintf("route %s before it takes every event, and the first match wins", r.Subject),
					"move it up, or remove it")
			}
			return
		}
	}
}

// checkConnection waits until there is a connection or the first attempt has
// failed.
func (c *preflight) checkConnection(ctx context.Context) bool {
	select {
	case <-c.p.link.tried:
	case <-ctx.Done():
	}
	err := c.p.Usable()
	if err == nil {
		err = c.p.roundTrip(ctx)
	}
	var why *Unusable
	if err == nil {
		return true
	}
	if !errors.As(err, &why) {
		why = &Unusable{relay.CodeUnavailable, err.Error()}
	}
	switch why.Code {
	case relay.CodeCredentials:
		c.add(SeverityError, "nats", why.Detail, "nothing can be published without a connection",
			"correct the credentials that [nats] names, or grant them on the server")
	case relay.CodeUnavailable:
		c.add(SeverityError, "nats", why.Detail, "an event counts as delivered only when its PubAck arrives",
			"grant the user what is missing")
	default:
		c.add(SeverityError, "nats", why.Detail, "nothing can be published without a connection",
			"check nats.urls, the network and whether nats-server runs")
	}
	return false
}

func (c *preflight) checkMaxPayload() {
	limit := c.p.link.conn().MaxPayload()
	if need := int64(c.o.MaxEvent) + headerAllowance; c.o.MaxEvent > 0 && limit < need {
		c.add(SeverityWarning, "nats", fmt.Sprintf("max_payload is %d bytes, max_event %d", limit, c.o.MaxEvent),
			"payload and headers count: an event that producers may enqueue can be too large to publish, and ends in quarantine",
			fmt.Sprintf("raise max_payload of the server to %d or more, or lower max_event", need))
	}
}

// checkJetStream reports a JetStream that cannot be used; false then.
func (c *preflight) checkJetStream(ctx context.Context) bool {
	info, err := c.p.account(ctx)
	if err == nil {
		c.checkQuota(info)
		return true
	}
	if errors.Is(err, errDenied) {
		c.add(SeverityUnknown, "nats", "the state of JetStream is not visible",
			"the user may not publish to "+c.p.apiPrefix()+"INFO",
			"allow it, or check with a user who may: nats account info")
		return true
	}
	why := c.p.jetStreamUsable(ctx)
	if why == nil {
		why = &Unusable{relay.CodeUnavailable, plain(err)}
	}
	c.add(SeverityError, "nats", "JetStream cannot be used: "+why.Detail,
		"events are stored by JetStream and by nothing else",
		"enable JetStream on the server and for the account, or set nats.domain or nats.api_prefix")
	return false
}

// checkQuota warns when the account's own storage is nearly used up.
func (c *preflight) checkQuota(info *jetstream.AccountInfo) {
	for _, q := range []struct {
		what  string
		used  uint64
		limit int64
	}{
		{"storage", info.Store, info.Limits.MaxStore},
		{"memory", info.Memory, info.Limits.MaxMemory},
	} {
		if q.limit > 0 && q.used >= uint64(q.limit)/10*9 {
			c.add(SeverityWarning, "nats", fmt.Sprintf("the account uses %d of %d bytes of JetStream %s", q.used, q.limit, q.what),
				"when it is full every stream of the account refuses events",
				"raise the account's limit or give the streams limits of their own")
		}
	}
}

// checkRoutes looks at the streams behind every route, each stream once.
func (c *preflight) checkRoutes(ctx context.Context) {
	seen, timed := make(map[string]bool), false
	for i := range c.routes.Len() {
		route := c.routes.At(i)
		asked := c.now()
		streams, err := c.p.overlapping(ctx, c.routes.Pattern(i))
		answered := c.now()
		if err != nil {
			c.unknownStreams(route, err)
			continue
		}
		c.checkRoute(route, c.routes.Pattern(i), streams)
		for _, s := range streams {
			if !timed && !s.TimeStamp.IsZero() {
				timed = true
				c.checkClock(s.TimeStamp, asked, answered)
			}
			if !seen[s.Config.Name] {
				seen[s.Config.Name] = true
				c.checkStream(s)
			}
		}
	}
}

func (c *preflight) unknownStreams(route relay.Route, err error) {
	if errors.Is(err, errDenied) {
		c.add(SeverityUnknown, routeName(route), "whether a stream takes its subjects is not visible",
			"the user may not publish to "+c.p.apiPrefix()+"STREAM.LIST",
			"allow it, or check with a user who may: nats stream ls --subject")
		return
	}
	c.add(SeverityUnknown, routeName(route), "its streams could not be looked up: "+plain(err),
		"the JetStream API failed", "check again later")
}

// checkRoute compares a route with the streams that it can reach.
func (c *preflight) checkRoute(route relay.Route, pattern string, streams []*jetstream.StreamInfo) {
	if len(streams) == 0 {
		c.add(SeverityError, routeName(route), "no stream takes any subject like "+pattern,
			"its events wait, blocked, until there is one",
			"create a stream with these subjects: nats stream add --subjects '"+pattern+"'")
		return
	}
	if route.ExpectStream == "" {
		return
	}
	expected := false
	for _, s := range streams {
		expected = expected || s.Config.Name == route.ExpectStream
	}
	for _, s := range streams {
		switch name := s.Config.Name; {
		case !expected:
			c.add(SeverityError, routeName(route), fmt.Sprintf("expects stream %s, but stream %s takes its subjects", route.ExpectStream, name),
				"JetStream refuses a message that names another stream", "correct expect_stream or the streams' subjects")
		case name != route.ExpectStream:
			c.add(SeverityWarning, routeName(route), fmt.Sprintf("expects stream %s, but stream %s takes some of its subjects too", route.ExpectStream, name),
				"events whose subject the other stream takes are refused and block the route",
				"narrow the route or the other stream's subjects")
		}
	}
}

// maxSkew is how far the clocks of host and server may differ.
const maxSkew = 5 * time.Second

// checkClock compares the server's time with the host's, allowing for the time
// that the question took.
func (c *preflight) checkClock(server, asked, answered time.Time) {
	skew := max(asked.Sub(server), server.Sub(answered))
	if skew > maxSkew {
		c.add(SeverityWarning, "clock", fmt.Sprintf("host and NATS server differ by about %v", skew.Round(time.Second)),
			"event times, max_age and logs of the two cannot be compared", "synchronise both clocks (NTP)")
	}
}
