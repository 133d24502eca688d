//go:build unix

package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/natstest"
)

// Each trouble of the network comes while events flow, stays for a while and
// goes. Events that it catches on their way are neither lost nor stored twice.
func TestNetworkTroubleLosesNothing(t *testing.T) {
	harness.Heavy(t)
	for name, trouble := range map[string]harness.Trouble{
		"answers delayed":         {Type: "latency", Stream: "downstream", Attributes: `"latency": 1500, "jitter": 500`},
		"requests delayed":        {Type: "latency", Stream: "upstream", Attributes: `"latency": 1500, "jitter": 500`},
		"answers swallowed":       {Type: "timeout", Stream: "downstream", Attributes: `"timeout": 0`},
		"requests swallowed":      {Type: "timeout", Stream: "upstream", Attributes: `"timeout": 0`},
		"cut within a message":    {Type: "limit_data", Stream: "upstream", Attributes: `"bytes": 5000`},
		"cut within an answer":    {Type: "limit_data", Stream: "downstream", Attributes: `"bytes": 3000`},
		"reset":                   {Type: "reset_peer", Stream: "downstream", Attributes: `"timeout": 50`},
		"a trickle":               {Type: "bandwidth", Stream: "upstream", Attributes: `"rate": 5`},
		"packets of a few bytes":  {Type: "slicer", Stream: "upstream", Attributes: `"average_size": 20, "size_variation": 10, "delay": 100`},
		"closed, and closed soon": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			proxy := harness.StartProxy(t, s.nats.Port())
			c := s.config()
			c.URLs = []string{proxy.URL()}
			c.MaxAttempts = 0
			relay := harness.StartRelay(t, "relay", c, s.faults)
			producers := s.produce(1, 600, 5*time.Millisecond)
			s.waitDeliveredAtLeast(50)
			s.faults.Record("network: " + name)
			var mend func()
			if trouble.Type == "" {
				proxy.Cut()
				mend = proxy.Mend
			} else {
				mend = proxy.Add(trouble)
			}
			harness.Steadily(t, 4*time.Second, "the relay runs and sets nothing aside", func() (bool, string) {
				states := s.db.States()
				return relay.Running() && states.Quarantined == 0, states.String()
			})
			mend()
			n := s.waitProduced(producers)
			s.db.WaitDelivered(n, time.Minute)
			relay.Stop()
			s.check(n, harness.Expect{})
			if lines := logLines(t, relay.Log()); len(lines) > 60 {
				t.Errorf("%d lines", len(lines))
			}
		})
	}
}

// A half of the connection is closed by the other side: it counts as broken, and
// the next one is used.
func TestHalfClosedConnectionIsReplaced(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	half := startHalfCloser(t, s.nats.Port())
	c := s.config()
	c.URLs = []string{half.url()}
	relay := harness.StartRelay(t, "relay", c, s.faults)
	producers := s.produce(1, 500, 4*time.Millisecond)
	for i := range 3 {
		s.waitDeliveredAtLeast(100 * (i + 1))
		s.faults.Record("half closed")
		half.closeHalves()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
}

// halfCloser forwards connections and can end the direction to the client alone.
type halfCloser struct {
	listener net.Listener
	mu       sync.Mutex
	clients  []*net.TCPConn
}

func startHalfCloser(t *testing.T, port int) *halfCloser {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	h := &halfCloser{listener: listener}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				client.Close()
				continue
			}
			h.mu.Lock()
			h.clients = append(h.clients, client.(*net.TCPConn))
			h.mu.Unlock()
			go func() { io.Copy(server, client); server.Close() }()
			go func() { io.Copy(client, server); client.(*net.TCPConn).CloseWrite() }()
		}
	}()
	return h
}

func (h *halfCloser) url() string { return "nats://" + h.listener.Addr().String() }

func (h *halfCloser) closeHalves() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clients {
		c.CloseWrite()
	}
	h.clients = nil
}

const passwordOnly = `
accounts { A { jetstream: enabled, users: [ { user: admin, password: admin }, { user: relay, password: %q } ] } }
no_auth_user: admin
`

// A password that the broker stops taking is an outage with its own code; the new
// one in the file ends it, without a restart.
func TestRotatedPasswordIsReadAgain(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, fmt.Sprintf(passwordOnly, "old"), allEvents(time.Minute))
	file := filepath.Join(t.TempDir(), "password")
	write(t, file, "old\n")
	c := s.config()
	c.NATS = fmt.Sprintf("user = \"relay\"\npassword_file = %q", file)
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	n := s.waitProduced(s.produce(1, 20, 0))
	s.db.WaitDelivered(n, harness.Patience)
	s.nats.SetConfig(fmt.Sprintf(passwordOnly, "new"))
	s.nats.Restart()
	more := s.waitProduced(s.produce(1, 20, 0))
	harness.Eventually(t, harness.Patience, "readiness names the credentials", func() (bool, string) {
		_, body := harness.Get(c.Metrics, "/readyz")
		return strings.Contains(body, "credentials"), body
	})
	if states := s.db.States(); states.Pending != more {
		t.Errorf("%v, want %d pending", states, more)
	}
	if err := os.WriteFile(file, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.db.WaitDelivered(n+more, harness.Patience)
	if strings.Contains(relay.Log(), `"old"`) || strings.Contains(relay.Log(), `"new"`) {
		t.Error("the log has a password")
	}
	relay.Stop()
	s.check(n+more, harness.Expect{})
}

// The leader of a replicated stream dies under load, and then comes back.
func TestClusterLeaderDies(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	servers := natstest.StartCluster(t, 3, "")
	s := &stage{t: t, nats: servers[0], db: harness.NewDatabase(t), faults: &harness.Journal{}}
	config := allEvents(2 * time.Minute)
	config.Replicas = 3
	s.createReplicated(config)
	c := s.config()
	c.URLs = nil
	for _, server := range servers {
		c.URLs = append(c.URLs, server.URL())
	}
	relay := harness.StartRelay(t, "relay", c, s.faults)
	producers := s.produce(1, 1500, 4*time.Millisecond)
	for i := range 2 {
		s.waitDeliveredAtLeast(200 * (i + 1))
		leader := s.leader(servers)
		s.faults.Record("leader killed")
		leader.Kill()
		s.waitDeliveredAtLeast(200*(i+1) + 300) // by the others
		leader.Start()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	s.check(n, harness.Expect{})
	if strings.Contains(relay.Log(), "quarantined") {
		t.Error("something was quarantined")
	}
}

// createReplicated creates a stream once the cluster has agreed on its leader.
func (s *stage) createReplicated(c jetstream.StreamConfig) {
	s.t.Helper()
	js := s.nats.JetStream()
	harness.Eventually(s.t, harness.Patience, "the cluster takes a stream", func() (bool, string) {
		_, err := js.CreateStream(s.t.Context(), c)
		return err == nil, fmt.Sprint(err)
	})
}

// leader is the server that leads the stream. It connects to any that runs.
func (s *stage) leader(servers []*natstest.Server) *natstest.Server {
	s.t.Helper()
	var found *natstest.Server
	harness.Eventually(s.t, harness.Patience, "the stream has a leader", func() (bool, string) {
		stream, err := s.nats.JetStream().Stream(s.t.Context(), "EVENTS")
		if err != nil {
			return false, err.Error()
		}
		info := stream.CachedInfo()
		for _, server := range servers {
			if info.Cluster != nil && server.Name() == info.Cluster.Leader {
				found = server
			}
		}
		return found != nil, fmt.Sprint(info.Cluster)
	})
	return found
}
