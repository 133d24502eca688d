package jetstream

import (
	"fmt"
	"sync"
	"time"

	"github.com/outbox-relay/relay/relay"
)

// flight is one message that was handed to the connection and has no result
// yet.
type flight struct {
	row     int64
	done    chan<- relay.Result
	subject string
	expect  string        // stream that must store it, "" any
	payload int32         // bytes
	headers int32         // bytes, as they go over the wire
	sent    time.Duration // since the publisher's start, monotonic
	refused string        // what else answered, while its PubAck may still come
	queried bool          // no responders; waits for the reason
	seq     uint64        // 0: the slot is free
	older   int32         // neighbours in order of sending, -1 none
	younger int32
}

func (f *flight) result(code relay.Code, detail string) relay.Result {
	return relay.Result{Row: f.row, Class: code.Class(), Code: code, Detail: detail}
}

// tooLarge is the rejection by the server's max_payload, which counts headers.
func (f *flight) tooLarge(limit int64) relay.Result {
	if int64(f.headers) > limit {
		return f.result(relay.CodeHeadersTooLarge,
			fmt.Sprintf("headers of %d bytes exceed max_payload %d", f.headers, limit))
	}
	return f.result(relay.CodeTooLarge,
		fmt.Sprintf("payload %d + headers %d bytes exceed max_payload %d", f.payload, f.headers, limit))
}

// slotBits are the low bits of a flight's id: its slot. The rest is a number
// that repeats only after 2^44 messages, so that an answer that comes late
// finds nobody.
const (
	slotBits = 20
	maxSlots = 1 << slotBits
	maxSeq   = 1<<(64-slotBits) - 1
)

// flights are the messages in flight. They are kept in slots, which an answer
// names, and chained in order of sending, which is the order of the deadlines.
type flights struct {
	mu     sync.Mutex
	slots  []flight
	free   []int32
	oldest int32
	newest int32
	count  int
	seq    uint64
}

// add keeps f and returns its id, or 0 when a million are in flight; first
// tells that nothing else is.
func (t *flights) add(f flight) (id uint64, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := int32(len(t.slots))
	if n := len(t.free); n > 0 {
		slot = t.free[n-1]
		t.free = t.free[:n-1]
	} else if slot == maxSlots {
		return 0, false
	} else {
		t.slots = append(t.slots, flight{})
	}
	t.seq = t.seq%maxSeq + 1
	f.seq, f.older, f.younger = t.seq, -1, -1
	if t.count > 0 {
		f.older = t.newest
		t.slots[t.newest].younger = slot
	} else {
		t.oldest = slot
	}
	t.newest = slot
	t.slots[slot] = f
	t.count++
	return t.seq<<slotBits | uint64(slot), t.count == 1
}

// take removes the flight; false if its result is out already.
func (t *flights) take(id uint64) (flight, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.find(id)
	if f == nil {
		return flight{}, false
	}
	return t.remove(int32(id & (maxSlots - 1))), true
}

// mark lets change set a flag of a flight that stays; false if it is gone.
func (t *flights) mark(id uint64, change func(*flight)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.find(id)
	if f != nil {
		change(f)
	}
	return f != nil
}

// takeSent removes, oldest first, what was sent at or before a time.
func (t *flights) takeSent(until time.Duration) []flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []flight
	for t.count > 0 && t.slots[t.oldest].sent <= until {
		out = append(out, t.remove(t.oldest))
	}
	return out
}

// takeIf removes what matches, oldest first.
func (t *flights) takeIf(match func(*flight) bool) []flight {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []flight
	for slot, left := t.oldest, t.count; left > 0; left-- {
		next := t.slots[slot].younger
		if match(&t.slots[slot]) {
			out = append(out, t.remove(slot))
		}
		slot = next
	}
	return out
}

func (t *flights) takeAll() []flight {
	return t.takeIf(func(*flight) bool { return true })
}

// oldestSent is when the oldest flight was sent; false if there is none.
func (t *flights) oldestSent() (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == 0 {
		return 0, false
	}
	return t.slots[t.oldest].sent, true
}

// find is the live flight of id or nil. t.mu is held.
func (t *flights) find(id uint64) *flight {
	slot := id & (maxSlots - 1)
	if slot >= uint64(len(t.slots)) || t.slots[slot].seq != id>>slotBits || id>>slotBits == 0 {
		return nil
	}
	return &t.slots[slot]
}

// remove unchains and frees a used slot. t.mu is held.
func (t *flights) remove(slot int32) flight {
	f := t.slots[slot]
	if f.older >= 0 {
		t.slots[f.older].younger = f.younger
	} else {
		t.oldest = f.younger
	}
	if f.younger >= 0 {
		t.slots[f.younger].older = f.older
	} else {
		t.newest = f.older
	}
	t.slots[slot] = flight{}
	t.free = append(t.free, slot)
	t.count--
	return f
}
