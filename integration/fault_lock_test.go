//go:build unix

package integration

import (
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// lockFaults keep every other process from writing to the file. Nothing waits
// for the lock to be had: a frozen relay may hold it.
var lockFaults = []fault{
	{name: "held by another process", target: "writer lock", most: 4 * time.Second, begin: func(w *world) func() {
		w.faults.Record("writer lock held")
		return harness.LaunchLocker(w.t, harness.LockOptions{
			DB: w.db.Path, Times: 1, Hold: time.Minute, Wait: harness.Patience,
		}).Kill
	}},
}
