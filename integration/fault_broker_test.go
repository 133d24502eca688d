//go:build unix

package integration

import "time"

// brokerFaults befall the nats-server process.
var brokerFaults = []fault{
	{name: "killed", target: "broker", most: 2 * time.Second, begin: func(w *world) func() {
		w.killBroker()
		return w.nats.Start
	}},
	{name: "stopped", target: "broker", most: 2 * time.Second, begin: func(w *world) func() {
		w.faults.Record("broker stopped")
		w.nats.Stop()
		return w.nats.Start
	}},
	{name: "frozen", target: "broker", most: 4 * time.Second, begin: func(w *world) func() {
		w.faults.Record("broker frozen")
		w.nats.Freeze()
		return w.nats.Thaw
	}},
}
