//go:build unix

package main

import (
	"context"
	"time"
)

// measureMemory drains a deep backlog, and large payloads, and takes the
// highest resident size.
func measureMemory(ctx context.Context, b *bench) error {
	const large = 900 << 10
	for _, m := range []struct {
		name, target string
		rows, size   int
	}{
		{"memory with a backlog of 1 KiB events", "≤ 64", b.backlog, eventSize},
		{"memory with payloads of 900 KiB", "bounded", b.large, large},
	} {
		path, err := b.filled(ctx, m.rows, m.size)
		if err != nil {
			return err
		}
		k, err := b.startBroker(ctx)
		if err != nil {
			return err
		}
		r, err := b.startRelay(k, path)
		if err != nil {
			return err
		}
		for end := time.Now().Add(3 * b.span); time.Now().Before(end); {
			n, err := k.stored(ctx)
			if err != nil {
				return err
			}
			if n >= m.rows {
				break
			}
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return err
			}
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
