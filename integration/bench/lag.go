//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// measureLag takes the lag at 100 rows/s and after idling, and what idling
// costs.
func measureLag(ctx context.Context, b *bench) error {
	path, err := b.newOutbox(ctx)
	if err != nil {
		return err
	}
	k, err := b.startBroker(ctx)
	if err != nil {
		return err
	}
	defer k.stop()
	r, err := b.startRelay(k, path)
	if err != nil {
		return err
	}
	if err := b.warmUp(ctx, k, path); err != nil {
		return err
	}
	if err := b.idling(ctx, k, r, path); err != nil {
		return err
	}
	before := cpu(r.PID())
	lags, _, err := b.producerLags(ctx, k, producerOptions{DB: path, Prefix: "lag-", Every: 10 * time.Millisecond, For: b.span})
	if err != nil {
		return err
	}
	used := 100 * (cpu(r.PID()) - before).Seconds() / b.span.Seconds()
	b.record("lag at 100 rows/s, p50", "ms", "≤ 3", quantile(lags, 0.5))
	b.record("lag at 100 rows/s, p99", "ms", "≤ 10", quantile(lags, 0.99))
	b.record("CPU of the relay at 100 rows/s", "% of a core", "", used)
	return r.stop(ctx)
}

// warmUp waits until one event has gone through.
func (b *bench) warmUp(ctx context.Context, k *broker, path string) error {
	if _, err := produce(ctx, producerOptions{DB: path, Prefix: "warm-", Count: 1}); err != nil {
		return err
	}
	_, err := k.waitStored(ctx, 1)
	return err
}

// producerLags runs a producer process to its end and returns the lags of its
// events, and how many there were.
func (b *bench) producerLags(ctx context.Context, k *broker, o producerOptions) ([]float64, int, error) {
	before, err := k.stored(ctx)
	if err != nil {
		return nil, 0, err
	}
	n, err := b.runProducer(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	if _, err := k.waitStored(ctx, before+n); err != nil {
		return nil, 0, err
	}
	lags, err := k.lags(ctx, uint64(before)+1)
	return lags, n, err
}

func (b *bench) runProducer(ctx context.Context, o producerOptions) (int, error) {
	p, err := b.role("producer", o)
	if err != nil {
		return 0, err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		return 0, err
	}
	if code != 0 {
		return 0, fmt.Errorf("the producer exits %d: %s", code, p.Tail(2))
	}
	return strconv.Atoi(strings.TrimSpace(p.Tail(1)))
}

const (
	lockCount   = "relay_writer_lock_seconds_count"
	idleWakeUps = 5
)

// idling measures the relay while nothing happens, and how fast it then is.
func (b *bench) idling(ctx context.Context, k *broker, r *daemon, path string) error {
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	locks, err := r.metric(lockCount)
	if err != nil {
		return err
	}
	before := cpu(r.PID())
	if err := sleep(ctx, b.sizes.idle); err != nil {
		return err
	}
	used := 100 * (cpu(r.PID()) - before).Seconds() / b.sizes.idle.Seconds()
	after, err := r.metric(lockCount)
	if err != nil {
		return err
	}
	b.record("idle: CPU of the relay", "% of a core", "≤ 1", used)
	b.record("idle: writer locks taken", "", "0", after-locks)
	var lags []float64
	for i := range idleWakeUps {
		if i > 0 {
			if err := sleep(ctx, b.sizes.idle/idleWakeUps); err != nil {
				return err
			}
		}
		l, _, err := b.producerLags(ctx, k, producerOptions{DB: path, Prefix: fmt.Sprintf("idle-%d-", i), Count: 1})
		if err != nil {
			return err
		}
		lags = append(lags, l...)
	}
	b.record("lag of the first event after idling, worst", "ms", "≤ 10", quantile(lags, 1))
	return nil
}

// measureApp lets an application commit flat out, alone and beside the relay.
func measureApp(ctx context.Context, b *bench) error {
	path, err := b.newOutbox(ctx)
	if err != nil {
		return err
	}
	alone, err := b.runProducer(ctx, producerOptions{DB: path, Prefix: "alone-", For: b.span})
	if err != nil {
		return err
	}
	if path, err = b.newOutbox(ctx); err != nil {
		return err
	}
	k, err := b.startBroker(ctx)
	if err != nil {
		return err
	}
	defer k.stop()
	r, err := b.startRelay(k, path)
	if err != nil {
		return err
	}
	if err := b.warmUp(ctx, k, path); err != nil {
		return err
	}
	lags, beside, err := b.producerLags(ctx, k, producerOptions{DB: path, Prefix: "beside-", For: b.span})
	if err != nil {
		return err
	}
	b.record("app flat out, alone", "commits/s", "", float64(alone)/b.span.Seconds())
	b.record("app flat out, beside the relay", "commits/s", "", float64(beside)/b.span.Seconds())
	b.record("app beside the relay / alone", "", "≥ 0.8", float64(beside)/float64(alone))
	b.record("lag beside that app, p50", "ms", "", quantile(lags, 0.5))
	b.record("lag beside that app, p99", "ms", "≤ 100", quantile(lags, 0.99))
	return r.stop(ctx)
}
