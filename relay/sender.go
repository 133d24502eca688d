package relay

import (
	"context"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// maxHandedOver bounds the batches that wait for the sender.
const maxHandedOver = 64

// sender hands rows to the publisher, so that encoding and a slow socket do
// not hold up the loop. It ends with its context, or when work is closed.
type sender struct {
	pub      Publisher
	base     time.Time
	isolated bool
	work     chan handOver // capacity maxHandedOver
}

// handOver is one batch on its way to the publisher.
type handOver struct {
	entries []*entry
	done    chan<- Result // has room for all of them
}

func (s *sender) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-s.work:
			s.send(ctx, h)
		}
	}
}

func (s *sender) send(ctx context.Context, h handOver) {
	sent := false
	for _, e := range h.entries {
		if ctx.Err() != nil {
			return
		}
		if e.state.CompareAndSwap(queued, sending) {
			s.publish(ctx, e, h.done)
			sent = true
		}
	}
	if sent {
		// What a failed flush means is in the results that follow.
		_ = s.pub.Flush()
	}
}

// publish starts one publish. Exactly one result follows.
func (s *sender) publish(ctx context.Context, e *entry, done chan<- Result) {
	e.sentAt = time.Now()
	row := e.row
	if int64(e.sentAt.Sub(s.base)) >= e.until.Load() {
		// Nobody knows who owns the row by now.
		done <- Result{Row: row, Code: CodeLeaseExpired}
		return
	}
	if s.isolated {
		e.msg.ID = e.event.IsolatedMessageID()
	} else {
		e.msg.ID = e.event.MessageID()
	}
	e.msg.Event = &e.event
	if err := s.pub.Publish(ctx, &e.msg, done); err != nil {
		done <- Result{Row: row, Class: Unavailable, Code: codeOf(err), Detail: err.Error()}
	}
	// The rest of the entry may be the loop's again: its result can be there.
	e.event, e.msg.Event = outbox.Event{}, nil
}
