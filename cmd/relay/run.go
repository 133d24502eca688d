package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	daemonlib "github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

func (a *app) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the relay",
		Long: `run relays until it gets SIGTERM or SIGINT, then waits up to [relay] drain for the
broker's answers and exits 0. A second signal ends it at once, with exit code 1.
SIGHUP reads routes, limits and the log level again; a bad file changes nothing.

A configuration that cannot work is exit 2, and a database that cannot be used
exit 1, both before anything starts. A broker that is down is neither: the relay
waits for it. Logs go to standard error, with --json always as JSON.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.configFile == "" {
				return usagef("--config FILE is required")
			}
			c, err := loadConfig(a.configFile)
			if err != nil {
				return err
			}
			if err := c.requireRoutes(); err != nil {
				return err
			}
			if err := c.requireBroker(); err != nil {
				return err
			}
			if a.json {
				c.Log.Format = "json"
			}
			return a.runDaemon(cmd.Context(), c)
		},
	}
}

// daemon is the running relay with what surrounds it.
type daemon struct {
	config    config
	log       zerolog.Logger
	store     *outbox.Store
	publisher *jetstream.Publisher
	relay     *relay.Relay
	registry  *prometheus.Registry
	notify    notifier
	hup       <-chan os.Signal
}

func (a *app) runDaemon(ctx context.Context, c config) error {
	d := &daemon{config: c, log: newLogger(a.stderr, c.Log), registry: prometheus.NewRegistry()}
	d.notify = newNotifier(d.log)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer d.watchSignals(stop)()
	var unwatch func()
	d.hup, unwatch = watchReload()
	defer unwatch()

	var current atomic.Pointer[relay.Relay] // the store reports busy tries before the relay exists
	if err := d.openStore(ctx, &current); err != nil {
		if errors.Is(err, context.Canceled) { // a signal came first
			return nil
		}
		return err
	}
	defer d.store.Close()
	listener, err := listen(c.Metrics.Listen)
	if err != nil {
		return err
	}
	if listener != nil {
		defer listener.Close()
	}
	if err := d.connect(); err != nil {
		return err
	}
	defer d.publisher.Close()
	if err := d.newRelay(); err != nil {
		return err
	}
	current.Store(d.relay)
	return d.serve(ctx, stop, listener)
}

func (d *daemon) openStore(ctx context.Context, current *atomic.Pointer[relay.Relay]) error {
	o := d.config.storeOptions(writes)
	o.OnBusy = func(waited time.Duration) {
		if r := current.Load(); r != nil {
			r.Busy(waited)
		}
	}
	var err error
	d.store, err = outbox.Open(ctx, d.config.Outbox.Path, o)
	return err
}

func listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w; choose a free address or \"\"", err)
	}
	return l, nil
}

func (d *daemon) connect() error {
	p, err := jetstream.Connect(d.config.natsOptions(d.log))
	if err != nil {
		return d.config.natsProblems(err)
	}
	d.publisher = p
	return nil
}

func (d *daemon) newRelay() error {
	c := &d.config
	handle, err := c.handle(d.store)
	if err != nil {
		return &configError{[]problem{{File: c.file, Key: "outbox.tenant", Message: err.Error()}}}
	}
	s, err := c.reloadable()
	if err != nil {
		return err
	}
	d.publisher.SetRoutes(s.Routes)
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d.relay, err = relay.New(relay.Options{
		Store: d.store, Handle: handle, Publisher: d.publisher,
		Routes: s.Routes, Log: d.log, Metrics: relay.NewMetrics(d.registry),
		Worker: c.worker(), Batch: s.Batch, InFlight: s.InFlight, InFlightBytes: s.InFlightBytes,
		Lease: c.Relay.Lease, Poll: c.Relay.Poll, Drain: c.Relay.Drain,
		MaxAttempts: s.MaxAttempts, Backoff: s.Backoff, Unrouted: s.Unrouted,
		IsolatedIDs: c.NATS.MsgIDScope == "isolated", Retention: s.Retention,
	})
	return err
}

// serve runs the relay and what reports on it, until the relay has drained.
func (d *daemon) serve(ctx context.Context, stop context.CancelFunc, listener net.Listener) error {
	v, _ := buildVersion()
	d.log.Info().Str("version", v).Str("database", d.config.Outbox.Path).Strs("servers", redactURLs(d.config.NATS.URLs)).
		Str("worker", d.config.worker()).Msg("relay started")
	around, end := context.WithCancel(context.WithoutCancel(ctx)) // outlives the drain
	defer end()
	go newReporter(d).run(around, d.hup)

	failed := make(chan error, 1)
	if listener != nil {
		server := d.httpServer()
		defer server.Close()
		go func() {
			failed <- fmt.Errorf("metrics listener: %w", server.Serve(listener))
			stop()
		}()
	}
	d.awaitBroker(ctx)
	err := d.relay.Run(ctx)
	select {
	case e := <-failed:
		err = errors.Join(e, err)
	default:
	}
	if err != nil {
		d.notify.send(daemonlib.SdNotifyStopping)
		d.log.Error().Err(err).Msg("relay failed")
		return err
	}
	d.log.Info().Msg("relay stopped")
	return nil
}

// firstConnection is how long the start may wait for the broker. One that is
// down refuses at once.
const firstConnection = 500 * time.Millisecond

// awaitBroker keeps the log of a normal start free of a broker that is "not
// connected yet".
func (d *daemon) awaitBroker(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstConnection)
	defer cancel()
	d.publisher.AwaitFirstAttempt(ctx)
}
