package relay

import (
	"math"
	"time"
)

const (
	// SamplePeriod is the length of one sample.
	SamplePeriod = 5 * time.Second

	sampleCount = 120 // ten minutes

	// Lags are counted in classes that grow by a quarter: an error of a few
	// per cent is good enough for a chart.
	lagClasses = 64
	lagBase    = 250 * time.Microsecond
)

var lagGrowth = math.Log(1.25)

// Sample is what happened in one SamplePeriod.
type Sample struct {
	At             time.Time     // its beginning
	Accepted       int           // events
	LagP50, LagP99 time.Duration // of those, within a quarter; 0 without any
	Backlog        int64         // pending rows at the last count; -1 unknown
}

// lagRing keeps the last samples.
type lagRing struct {
	slots [sampleCount]lagSlot
	last  int // the one that grows
}

type lagSlot struct {
	at      time.Time
	backlog int64
	lags    lagCounts
}

type lagCounts struct {
	total   int
	classes [lagClasses]int32
}

func (c *lagCounts) add(lag time.Duration) {
	i := 0
	if lag > lagBase {
		i = min(int(math.Log(float64(lag)/float64(lagBase))/lagGrowth)+1, lagClasses-1)
	}
	c.classes[i]++
	c.total++
}

func (c *lagCounts) merge(o *lagCounts) {
	c.total += o.total
	for i, n := range o.classes {
		c.classes[i] += n
	}
}

// quantile is the upper end of the class that has it.
func (c *lagCounts) quantile(q float64) time.Duration {
	if c.total == 0 {
		return 0
	}
	rank := int32(math.Ceil(q * float64(c.total)))
	for i, n := range c.classes {
		if rank -= n; rank <= 0 {
			return time.Duration(float64(lagBase) * math.Exp(lagGrowth*float64(i)))
		}
	}
	return 0
}

func (r *lagRing) add(lag time.Duration) { r.slots[r.last].lags.add(lag) }

func (r *lagRing) backlog(n int64) { r.slots[r.last].backlog = n }

// roll begins new samples up to now.
func (r *lagRing) roll(now time.Time) {
	cur := &r.slots[r.last]
	if cur.at.IsZero() {
		*cur = lagSlot{at: now, backlog: -1}
		return
	}
	at, backlog := cur.at, cur.backlog
	if gap := now.Sub(at); gap > sampleCount*SamplePeriod {
		at = now.Add(-sampleCount * SamplePeriod)
	}
	for now.Sub(at) >= SamplePeriod {
		at = at.Add(SamplePeriod)
		r.last = (r.last + 1) % sampleCount
		r.slots[r.last] = lagSlot{at: at, backlog: backlog}
	}
}

// samples are oldest first.
func (r *lagRing) samples() []Sample {
	var out []Sample
	for i := range r.slots {
		s := &r.slots[(r.last+1+i)%sampleCount]
		if s.at.IsZero() {
			continue
		}
		out = append(out, Sample{
			At: s.at, Accepted: s.lags.total, Backlog: s.backlog,
			LagP50: s.lags.quantile(.5), LagP99: s.lags.quantile(.99),
		})
	}
	return out
}

// lastMinute sums up the samples that began within it.
func (r *lagRing) lastMinute(now time.Time) (rate float64, p50, p99 time.Duration) {
	var sum lagCounts
	began := now
	for i := range r.slots {
		s := &r.slots[i]
		if s.at.IsZero() || now.Sub(s.at) > time.Minute {
			continue
		}
		sum.merge(&s.lags)
		began = earliest(began, s.at)
	}
	if span := now.Sub(began).Seconds(); span > 0 {
		rate = float64(sum.total) / span
	}
	return rate, sum.quantile(.5), sum.quantile(.99)
}
