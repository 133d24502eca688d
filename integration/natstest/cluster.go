package natstest

import (
	"fmt"
	"strings"
	"testing"
)

// StartCluster runs n JetStream servers as one cluster and waits until they
// have a leader. config is appended to each server's own.
func StartCluster(tb testing.TB, n int, config string) []*Server {
	tb.Helper()
	ports := make([]int, n)
	routes := make([]string, n)
	for i := range ports {
		ports[i] = FreePort(tb)
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", ports[i])
	}
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = Prepare(tb, Options{Config: fmt.Sprintf(
			"cluster: {name: test, listen: \"127.0.0.1:%d\", routes: [%s]}\n%s",
			ports[i], strings.Join(routes, ", "), config)})
		servers[i].Launch()
	}
	for _, s := range servers {
		s.WaitReady()
	}
	servers[0].wait("JetStream leader", func() bool {
		for _, s := range servers {
			if strings.Contains(s.Log(), "Self is new JetStream cluster metadata leader") {
				return true
			}
		}
		return false
	})
	return servers
}
