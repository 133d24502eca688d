package relay

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// maxCadence bounds the time between two probes, and the delay of rows that
// wait for the broker or a route and not for themselves.
const maxCadence = 30 * time.Second

// maxDelay is the longest delay that a settlement may have.
const maxDelay = 30 * 24 * time.Hour

func (b Backoff) withDefaults() Backoff {
	if b == (Backoff{}) {
		return Backoff{Initial: time.Second, Max: 5 * time.Minute, Multiplier: 2, Jitter: 0.2}
	}
	b.Initial = max(orDefault(b.Initial, time.Second), time.Millisecond)
	b.Max = min(max(orDefault(b.Max, 5*time.Minute), b.Initial), maxDelay)
	if !(b.Multiplier >= 1) {
		b.Multiplier = 2
	}
	b.Jitter = min(max(b.Jitter, 0), 1)
	return b
}

// delay is the wait after the given number of attempts, which is at least 1, in
// whole milliseconds.
func (b Backoff) delay(attempts int64) time.Duration {
	d := float64(b.Initial) * math.Pow(b.Multiplier, float64(max(attempts, 1)-1))
	if !(d < float64(b.Max)) { // also where it overflowed
		d = float64(b.Max)
	}
	d *= 1 + b.Jitter*(2*rand.Float64()-1)
	return wholeMillis(time.Duration(d))
}

// wholeMillis rounds d up to whole milliseconds, within what a settlement takes.
func wholeMillis(d time.Duration) time.Duration {
	d = min(max(d, 0), maxDelay)
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// cadence spaces probes. It never gives up.
type cadence struct{ b *backoff.ExponentialBackOff }

func newCadence(b Backoff) cadence {
	return cadence{backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.Initial),
		backoff.WithMaxInterval(min(b.Max, maxCadence)),
		backoff.WithMultiplier(b.Multiplier),
		backoff.WithRandomizationFactor(b.Jitter),
		backoff.WithMaxElapsedTime(0),
	)}
}

// next is the time until the next probe; each call is one probe later.
func (c cadence) next() time.Duration { return min(c.b.NextBackOff(), maxCadence) }

func (c cadence) reset() { c.b.Reset() }
