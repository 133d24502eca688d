//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// measureMemory drains a deep backlog, large payloads, and what nobody should do, and
// takes the highest resident size.
func measureMemory(ctx context.Context, b *bench) error {
	const large, almostMax = 900 << 10, 1<<20 - 16<<10 // the server takes 1 MiB, headers included
	for _, m := range []struct {
		name, target string
		rows, size   int
		settings     string
		change       func(i int, e *outbox.Event)
	}{
		{"memory with a backlog of 1 KiB events", "≤ 64", b.backlog, eventSize, "", nil},
		{"memory with payloads of 900 KiB", "bounded", b.large, large, "", nil},
		{"memory with batches of 1000, payloads of 1 MiB, longest ids", "bounded", b.large, almostMax, "batch = 1000", longestNames},
		{"memory with a stream for every event", "bounded", b.backlog, 16, "", ownStream},
	} {
		path, err := b.newOutbox(ctx)
		if err != nil {
			return err
		}
		if err := fill(ctx, path, m.rows, m.size, m.change); err != nil {
			return err
		}
		k, err := b.startBroker(ctx)
		if err != nil {
			return err
		}
		r, err := b.startRelayWith(k, path, m.settings)
		if err != nil {
			return err
		}
		stored := 0
		for end := time.Now().Add(3 * b.span); stored < m.rows && time.Now().Before(end); {
			if stored, err = k.stored(ctx); err != nil {
				return err
			}
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if stored == 0 {
			return fmt.Errorf("%s: nothing was stored in %v: %s", m.name, 3*b.span, r.Tail(3))
		}
		b.record(m.name, "MiB", m.target, status(r.PID(), "VmHWM")/1024)
		b.record(m.name+", without mapped files", "MiB", "", status(r.PID(), "RssAnon")/1024)
		err = r.stop(ctx)
		k.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// longestNames gives an event an id, a source and a type as long as they may be.
func longestNames(i int, e *outbox.Event) {
	e.ID = fmt.Sprintf("%01024d", i)
	e.Source = "/" + strings.Repeat("s", 1023)
	e.Type = strings.Repeat("t", 1024)
}

func ownStream(i int, e *outbox.Event) { e.Stream = fmt.Sprintf("stream-%d", i) }
