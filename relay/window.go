package relay

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// Who may touch an entry's event and start its publish is decided by one
// compare-and-swap: the sender moves queued to sending, the loop moves queued
// to kept when it takes a row back. Whoever loses leaves the row alone.
const (
	kept    uint32 = iota // the loop's own: never handed over, or taken back
	queued                // handed to the sender, which has not begun
	sending               // the sender's: its result will come
)

// entry is one claimed row. Its fields are the loop's, except event and msg,
// which are the sender's once it has begun, and sentAt, which is the sender's until the
// result.
type entry struct {
	row         int64
	token       outbox.Token
	attempts    int64
	lastFailure Code // before this claim
	enqueuedAt  time.Time
	bytes       int64
	stream      *streamCounters
	streamName  string
	pause       pauseKey
	routes      int    // generation of the routes that addressed it
	probe       *pause // set: its result decides whether this pause ends

	state  atomic.Uint32
	until  atomic.Int64 // end of the lease, as time since the loop's base, never late
	event  outbox.Event
	msg    Message
	sentAt time.Time

	unanswered bool // handed over, no result yet
	accepted   bool // the broker has it
	settlement outbox.Settlement
	code       Code // of a quarantine
}

// takeBack makes sure that the sender will not start e. False: it has.
func (e *entry) takeBack() bool {
	if !e.state.CompareAndSwap(queued, kept) {
		return false
	}
	e.event = outbox.Event{}
	return true
}

// eventOverhead is what an event costs beside its own bytes: its struct, its
// entry, map slots and headers on the way out.
const eventOverhead = 1024

// eventBytes is what e holds in memory, roughly and never less than its data.
func eventBytes(e *outbox.Event) int64 {
	n := eventOverhead + len(e.Data.Bytes()) + len(e.Tenant) + len(e.Stream) + len(e.ID) + len(e.Source) +
		len(e.Type) + len(e.Subject) + len(e.ContentType) + len(e.DataSchema) + len(e.PartitionKey)
	return int64(n + 64*len(e.Extensions))
}

// window holds the rows that are claimed and not yet settled.
type window struct {
	rows  map[int64]*entry
	bytes int64

	ready      []*entry // decided: settled by the next turns, in this order
	readyBytes int64
	readySince time.Time // when the oldest of ready was decided

	unanswered int // entries with the sender or on the wire

	// late has rows whose claim was lost while their publish was unanswered.
	// They still take room, because their results will come.
	late map[int64]struct{}
}

func newWindow() window {
	return window{rows: make(map[int64]*entry), late: make(map[int64]struct{})}
}

func (w *window) add(e *entry) {
	w.rows[e.row] = e
	w.bytes += e.bytes
}

// handOver marks e as the sender's.
func (w *window) handOver(e *entry) {
	e.state.Store(queued)
	e.unanswered = true
	w.unanswered++
}

// answered ends the sender's part of e.
func (w *window) answered(e *entry) {
	if e.unanswered {
		e.unanswered = false
		w.unanswered--
	}
}

// decide says how e is to be settled.
func (w *window) decide(e *entry, s outbox.Settlement, now time.Time) {
	s.Row, s.Token = e.row, e.token
	e.settlement = s
	if len(w.ready) == 0 {
		w.readySince = now
	}
	w.ready = append(w.ready, e)
	w.readyBytes += e.bytes
}

// unready takes e off the list of decided entries.
func (w *window) unready(e *entry) {
	if i := slices.Index(w.ready, e); i >= 0 {
		w.ready = slices.Delete(w.ready, i, i+1)
		w.readyBytes -= e.bytes
	}
}

// remove forgets e, which was settled or lost, and is not on the list of decided
// entries.
func (w *window) remove(e *entry) {
	delete(w.rows, e.row)
	w.bytes -= e.bytes
	if e.unanswered {
		e.unanswered = false
		w.unanswered--
		if !e.takeBack() {
			w.late[e.row] = struct{}{}
		}
	}
}

// dropReady takes the first n decided entries off the list.
func (w *window) dropReady(n int, now time.Time) {
	for _, e := range w.ready[:n] {
		w.readyBytes -= e.bytes
	}
	rest := copy(w.ready, w.ready[n:])
	clear(w.ready[rest:])
	w.ready = w.ready[:rest]
	w.readySince = now
}

// room is how many rows a turn that settles the first n decided entries could
// claim.
func (w *window) room(limit, n int) int { return limit - len(w.rows) - len(w.late) + n }

// storedRows remembers rows that the broker has although their claim was lost
// before that could be recorded, so that the same relay need not publish them
// again: row ids never return and events never change. The oldest are forgotten.
type storedRows struct {
	rows  map[int64]struct{}
	order []int64
	next  int
}

const maxStored = 8192

func (s *storedRows) add(row int64) {
	if s.rows == nil {
		s.rows = make(map[int64]struct{})
	}
	if _, ok := s.rows[row]; ok {
		return
	}
	s.rows[row] = struct{}{}
	if len(s.order) < maxStored {
		s.order = append(s.order, row)
		return
	}
	delete(s.rows, s.order[s.next])
	s.order[s.next] = row
	s.next = (s.next + 1) % maxStored
}

func (s *storedRows) has(row int64) bool {
	_, ok := s.rows[row]
	return ok
}
