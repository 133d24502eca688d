package main

import (
	"fmt"
	"net/url"
	"os"

	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

func (c *config) natsOptions(log zerolog.Logger) jetstream.Options {
	n := c.NATS
	return jetstream.Options{
		URLs: n.URLs, Name: n.Name, Creds: n.Creds, NKey: n.NKey,
		User: n.User, PasswordFile: n.PasswordFile, TokenFile: n.TokenFile,
		PublishTimeout: n.PublishTimeout,
		Domain:         n.Domain, APIPrefix: n.APIPrefix, InboxPrefix: n.InboxPrefix,
		Structured:     n.Mode == "structured",
		RoutingHeaders: n.RoutingHeaders, TraceHeaders: n.TraceHeaders,
		TLS:     jetstream.TLS{CA: n.TLS.CA, Cert: n.TLS.Cert, Key: n.TLS.Key, HandshakeFirst: n.TLS.HandshakeFirst},
		Backoff: c.Relay.Backoff, Log: log,
	}
}

// settings are what a reload can change.
func (c *config) reloadable() (relay.Settings, error) {
	routes, err := relay.NewRoutes(c.Routes)
	if err != nil {
		return relay.Settings{}, &configError{[]problem{{File: c.file, Message: err.Error()}}}
	}
	s := relay.Settings{
		Routes: routes, Batch: c.Relay.Batch, InFlight: c.Relay.InFlight, InFlightBytes: c.Relay.InFlightBytes,
		MaxAttempts: c.Relay.MaxAttempts, Backoff: c.Relay.Backoff, Retention: c.Retention,
	}
	if c.Relay.Unrouted == "quarantine" {
		s.Unrouted = relay.UnroutedQuarantine
	}
	return s, nil
}

// worker is the name on claimed rows.
func (c *config) worker() string {
	if c.Outbox.Worker != "" {
		return c.Outbox.Worker
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host" // the process id still tells relays of one machine apart
	}
	if len(host) > 200 {
		host = host[:200]
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// redactURLs are the servers without their user information.
func redactURLs(urls []string) []string {
	out := make([]string, len(urls))
	for i, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			out[i] = "(unreadable)" // it may hold a password
			continue
		}
		if u.User != nil {
			u.User = url.User("***")
		}
		out[i] = u.Scheme + "://" + u.Host
		if u.User != nil {
			out[i] = u.Scheme + "://***@" + u.Host
		}
	}
	return out
}
