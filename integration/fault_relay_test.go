//go:build unix

package integration

import (
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// relayFaults befall one relay process. Freezes outlast the lease (3 s) now and
// then, so that the other relay takes the rows over.
var relayFaults = []fault{
	relayFault(0, "killed", time.Second, killRelay),
	relayFault(1, "killed", time.Second, killRelay),
	relayFault(0, "frozen", 5*time.Second, freezeRelay),
	relayFault(1, "frozen", 5*time.Second, freezeRelay),
	relayFault(0, "redeployed", time.Second, redeployRelay),
}

func relayFault(i int, name string, most time.Duration, begin func(*harness.Relay) func()) fault {
	return fault{
		name: name, target: []string{"relay-a", "relay-b"}[i], most: most,
		begin: func(w *world) func() { return begin(w.relays[i]) },
	}
}

func killRelay(r *harness.Relay) func() {
	r.Kill()
	return r.Start
}

func freezeRelay(r *harness.Relay) func() {
	r.Freeze()
	return r.Thaw
}

// redeployRelay has to end in order whatever else is wrong. Nothing else is mended
// meanwhile, so that the lock's holder may outlast the drain.
func redeployRelay(r *harness.Relay) func() {
	r.StopAnyhow()
	return r.Start
}
