//go:build unix

package integration

import (
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// networkFaults befall the connection between relays and broker; both ends live.
var networkFaults = []fault{
	{name: "cut", target: "network", most: 2 * time.Second, begin: func(w *world) func() {
		w.faults.Record("network cut")
		w.proxy.Cut()
		return w.proxy.Mend
	}},
	networkFault("slow", 3*time.Second, harness.Trouble{
		Type: "latency", Stream: "downstream", Attributes: `"latency": 300, "jitter": 200`,
	}),
	networkFault("narrow", 2*time.Second, harness.Trouble{
		Type: "bandwidth", Stream: "upstream", Attributes: `"rate": 50`,
	}),
	networkFault("answers lost", 3*time.Second, harness.Trouble{
		Type: "timeout", Stream: "downstream", Attributes: `"timeout": 0`,
	}),
	networkFault("requests lost", 3*time.Second, harness.Trouble{
		Type: "timeout", Stream: "upstream", Attributes: `"timeout": 0`,
	}),
	networkFault("closed after some bytes", time.Second, harness.Trouble{
		Type: "limit_data", Stream: "upstream", Attributes: `"bytes": 20000`,
	}),
	networkFault("reset", time.Second, harness.Trouble{
		Type: "reset_peer", Stream: "downstream", Attributes: `"timeout": 100`,
	}),
}

func networkFault(name string, most time.Duration, trouble harness.Trouble) fault {
	return fault{name: name, target: "network", most: most, begin: func(w *world) func() {
		w.faults.Record("network " + name)
		return w.proxy.Add(trouble)
	}}
}
