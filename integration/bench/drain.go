//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// The relay's defaults.
const (
	defaultBatch  = 512
	defaultWindow = 2048
	eventSize     = 1024
)

// measureDrain compares the whole relay with its two halves.
func measureDrain(ctx context.Context, b *bench) error {
	alone, err := b.claimAndSettle(ctx, defaultBatch)
	if err != nil {
		return err
	}
	small, err := b.claimAndSettle(ctx, 256)
	if err != nil {
		return err
	}
	publish, err := b.publishAlone(ctx)
	if err != nil {
		return err
	}
	drain, relayCPU, serverCPU, err := b.drain(ctx)
	if err != nil {
		return err
	}
	b.record("claim and settle alone, batch 512", "rows/s", "", alone.rate)
	b.record("publish alone, window 2048", "msg/s", "", publish)
	b.record("drain", "rows/s", "", drain)
	b.record("drain / slower half", "", "≥ 0.65", drain/min(alone.rate, publish))
	b.record("drain: CPU of the relay per row", "µs", "", relayCPU)
	b.record("drain: CPU of nats-server per row", "µs", "", serverCPU)
	b.record("writer slot held, p99, batch 512", "ms", "≤ 15", alone.held)
	b.record("writer slot held, p99, batch 256", "ms", "≤ 8", small.held)
	b.drained = drain
	return nil
}

// turns are what a series of exchanges took.
type turns struct {
	rate float64 // rows/s
	held float64 // p99, ms
}

// claimAndSettle moves rows through claim and ack without publishing.
func (b *bench) claimAndSettle(ctx context.Context, batch int) (turns, error) {
	path, err := b.filled(ctx, b.rows, eventSize)
	if err != nil {
		return turns{}, err
	}
	s, err := outbox.Open(ctx, path, outbox.Options{})
	if err != nil {
		return turns{}, err
	}
	defer s.Close()
	h := s.AllTenants()
	var held []float64
	var settle []outbox.Settlement
	began, rows := time.Now(), 0
	for {
		x, err := h.Exchange(ctx, settle, outbox.ClaimRequest{Worker: "bench", Lease: time.Minute, Limit: batch})
		if err != nil || x.ClaimErr != nil {
			return turns{}, fmt.Errorf("exchange: %w, %w", err, x.ClaimErr)
		}
		held = append(held, float64(x.Held)/1e6)
		if rows += len(x.Claimed); len(x.Claimed) == 0 {
			break
		}
		settle = settle[:0]
		for i := range x.Claimed {
			settle = append(settle, outbox.Settlement{Row: x.Claimed[i].Row, Token: x.Claimed[i].Token, Action: outbox.Ack})
		}
	}
	return turns{float64(rows) / time.Since(began).Seconds(), quantile(held, 0.99)}, nil
}

// publishAlone sends the same messages with the same headers and window.
func (b *bench) publishAlone(ctx context.Context) (float64, error) {
	k, err := b.startBroker(ctx)
	if err != nil {
		return 0, err
	}
	defer k.stop()
	p, err := jetstream.Connect(jetstream.Options{
		URLs: []string{k.url}, PublishTimeout: 10 * time.Second, RoutingHeaders: true, Log: zerolog.Nop(),
	})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	for p.Usable() != nil {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	window := make(chan struct{}, defaultWindow)
	done := make(chan relay.Result, defaultWindow)
	ended := make(chan error, 1)
	go func() {
		var bad error
		for range b.rows {
			if r := <-done; r.Class != relay.Accepted {
				bad = fmt.Errorf("publish: %s", r.Detail)
			}
			<-window
		}
		ended <- bad
	}()
	data, began := payload(eventSize), time.Now()
	for i := range b.rows {
		e := event(fmt.Sprintf("alone-%012d", i), data)
		m := relay.Message{Row: int64(i), Subject: "ev.acme.orders", ExpectStream: "EVENTS", ID: e.MessageID(), Event: &e}
		window <- struct{}{}
		if err := p.Publish(ctx, &m, done); err != nil {
			return 0, err
		}
	}
	err = <-ended
	return float64(b.rows) / time.Since(began).Seconds(), err
}

// drain lets a relay process work off a backlog. What it does before its first
// tenth has been stored does not count: it is mostly starting up.
func (b *bench) drain(ctx context.Context) (rate, relayCPU, serverCPU float64, err error) {
	path, err := b.filled(ctx, b.rows, eventSize)
	if err != nil {
		return 0, 0, 0, err
	}
	k, err := b.startBroker(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	defer k.stop()
	r, err := b.startRelay(k, path)
	if err != nil {
		return 0, 0, 0, err
	}
	first, err := k.waitStored(ctx, b.rows/10)
	if err != nil {
		return 0, 0, 0, err
	}
	began, relayBefore, serverBefore := time.Now(), cpu(r.PID()), cpu(k.server.PID())
	if _, err = k.waitStored(ctx, b.rows); err != nil {
		return 0, 0, 0, err
	}
	n := float64(b.rows - first)
	rate = n / time.Since(began).Seconds()
	relayCPU = float64(cpu(r.PID())-relayBefore) / 1e3 / n
	serverCPU = float64(cpu(k.server.PID())-serverBefore) / 1e3 / n
	return rate, relayCPU, serverCPU, r.stop(ctx)
}

// waitStored waits until the stream has n messages.
func (k *broker) waitStored(ctx context.Context, n int) (int, error) {
	for {
		stored, err := k.stored(ctx)
		if err != nil || stored >= n {
			return stored, err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return stored, err
		}
	}
}
