package relay

import (
	"context"
	"slices"
	"sync"
	"time"
)

// answer is what the fake broker does with a message.
type answer struct {
	Result
	after  time.Duration // of the result; 0: within Publish
	refuse error         // Publish fails
	never  bool          // no result until the broker is told to
}

var stored = answer{Result: Result{Class: Accepted, Sent: true}, after: 200 * time.Microsecond}

func answered(class Class, code Code) answer {
	return answer{Result: Result{Class: class, Code: code, Detail: "says the test", Sent: true}, after: time.Millisecond}
}

// fakeBroker is a Publisher whose behaviour a test sets.
type fakeBroker struct {
	mu       sync.Mutex
	behave   func(m *Message) answer // nil: stores everything
	usable   error
	probe    error
	probes   []time.Time
	copies   map[int64]int // messages that left, by row
	stored   map[int64]int // messages stored, by row
	ids      map[string]int64
	subjects map[int64]string
	waiting  []func(Result) // publishes without a result
	times    map[int64][]time.Time
}

func newBroker() *fakeBroker {
	return &fakeBroker{
		copies: make(map[int64]int), stored: make(map[int64]int), ids: make(map[string]int64),
		subjects: make(map[int64]string), times: make(map[int64][]time.Time),
	}
}

func (b *fakeBroker) Publish(_ context.Context, m *Message, done chan<- Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := stored
	if b.behave != nil {
		a = b.behave(m)
	}
	row := m.Row
	b.times[row] = append(b.times[row], time.Now())
	if a.refuse != nil {
		return a.refuse
	}
	a.Row = row
	if a.Sent {
		b.copies[row]++
		b.subjects[row] = m.Subject
		b.ids[m.ID] = row
	}
	finish := func(r Result) {
		if r.Class == Accepted {
			b.mu.Lock()
			b.stored[row]++
			b.mu.Unlock()
		}
		select {
		case done <- r:
		default:
			panic("no room for a result")
		}
	}
	switch {
	case a.never:
		b.waiting = append(b.waiting, func(r Result) { r.Row = row; finish(r) })
	case a.after > 0:
		time.AfterFunc(a.after, func() { finish(a.Result) })
	default:
		go finish(a.Result)
	}
	return nil
}

func (b *fakeBroker) Flush() error { return nil }

func (b *fakeBroker) Usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usable
}

func (b *fakeBroker) Probe(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes = append(b.probes, time.Now())
	return b.probe
}

// set changes the behaviour.
func (b *fakeBroker) set(fn func(b *fakeBroker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn(b)
}

// answerAll gives every waiting publish its result.
func (b *fakeBroker) answerAll(r Result) {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, finish := range waiting {
		finish(r)
	}
}

func (b *fakeBroker) storedRows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.stored)
}

// publishedRows counts the rows that were handed to the broker.
func (b *fakeBroker) publishedRows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times)
}

// probeTimes are the times of the probes.
func (b *fakeBroker) probeTimes() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.probes)
}

// published are the times at which a row was handed to the broker.
func (b *fakeBroker) published(row int64) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.times[row])
}
