package jetstream

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// What only a cluster, a newer server or another clock shows.
func TestStreamChecks(t *testing.T) {
	cases := []struct {
		name    string
		change  func(*jetstream.StreamInfo)
		problem string // "" for none
	}{
		{"nothing", func(*jetstream.StreamInfo) {}, ""},
		{"one replica without a cluster", func(s *jetstream.StreamInfo) {
			s.Config.Replicas, s.Cluster = 1, &jetstream.ClusterInfo{Leader: "a"}
		}, ""},
		{"one replica in a cluster", func(s *jetstream.StreamInfo) { s.Config.Replicas = 1 }, "one replica"},
		{"no leader", func(s *jetstream.StreamInfo) { s.Cluster.Leader = "" }, "no leader"},
		{"written after the acknowledgement", func(s *jetstream.StreamInfo) { s.Config.PersistMode = jetstream.AsyncPersistMode }, "persist_mode"},
		{"interest with a consumer", func(s *jetstream.StreamInfo) {
			s.Config.Retention, s.State.Consumers = jetstream.InterestPolicy, 1
		}, ""},
		{"window just long enough", func(s *jetstream.StreamInfo) { s.Config.Duplicates = 5*time.Minute + 35*time.Second }, ""},
		{"window just too short", func(s *jetstream.StreamInfo) { s.Config.Duplicates = 5*time.Minute + 34*time.Second }, "duplicate window"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &jetstream.StreamInfo{
				Config:  jetstream.StreamConfig{Name: "S", Replicas: 3, Duplicates: time.Hour, Discard: jetstream.DiscardNew},
				Cluster: &jetstream.ClusterInfo{Name: "c", Leader: "a"},
			}
			c.change(s)
			pf := &preflight{
				p: &Publisher{o: Options{PublishTimeout: 5 * time.Second}},
				o: PreflightOptions{Lease: 30 * time.Second, Backoff: relay.Backoff{Max: 5 * time.Minute}},
			}
			pf.checkStream(s)
			switch {
			case c.problem == "" && len(pf.findings) > 0:
				t.Errorf("%+v", pf.findings)
			case c.problem != "" && (len(pf.findings) != 1 || !strings.Contains(pf.findings[0].Problem, c.problem)):
				t.Errorf("%+v, want one with %q", pf.findings, c.problem)
			}
		})
	}
}

func TestClockSkew(t *testing.T) {
	asked := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	answered := asked.Add(2 * time.Second)
	for server, want := range map[time.Duration]int{
		time.Second: 0, -4 * time.Second: 0, -6 * time.Second: 1, 6 * time.Second: 0, 8 * time.Second: 1, -time.Hour: 1,
	} {
		pf := &preflight{}
		pf.checkClock(asked.Add(server), asked, answered)
		if len(pf.findings) != want {
			t.Errorf("server at %v: %+v", server, pf.findings)
		}
	}
}

func TestQuota(t *testing.T) {
	for used, want := range map[uint64]int{0: 0, 899: 0, 900: 1, 1000: 1} {
		pf := &preflight{}
		info := &jetstream.AccountInfo{}
		info.Store, info.Limits.MaxStore, info.Limits.MaxMemory = used, 1000, -1
		pf.checkQuota(info)
		if len(pf.findings) != want {
			t.Errorf("%d of 1000 used: %+v", used, pf.findings)
		}
	}
}

func TestLostQuorum(t *testing.T) {
	peers := func(offline ...bool) *jetstream.StreamInfo {
		s := &jetstream.StreamInfo{Cluster: &jetstream.ClusterInfo{Leader: "a"}}
		s.Config.Replicas = len(offline) + 1
		for _, o := range offline {
			s.Cluster.Replicas = append(s.Cluster.Replicas, &jetstream.PeerInfo{Offline: o})
		}
		return s
	}
	leaderless := peers(false, false)
	leaderless.Cluster.Leader = ""
	silent := func(active ...time.Duration) *jetstream.StreamInfo {
		s := peers(make([]bool, len(active))...)
		for i, d := range active {
			s.Cluster.Replicas[i].Active = d
		}
		return s
	}
	for _, c := range []struct {
		name string
		s    *jetstream.StreamInfo
		want bool
	}{
		{"no cluster", &jetstream.StreamInfo{}, false},
		{"one replica", peers(), false},
		{"three of three", peers(false, false), false},
		{"two of three", peers(true, false), false},
		{"one of three", peers(true, true), true},
		{"three of five", peers(true, true, false, false), false},
		{"two of five", peers(true, true, true, false), true},
		{"no leader", leaderless, true},
		{"between heartbeats", silent(time.Second, time.Second), false},
		{"one silent", silent(3*time.Second, 0), false},
		{"both silent", silent(3*time.Second, 2*time.Second+time.Millisecond), true},
	} {
		if got := lostQuorum(c.s, 2*time.Second); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
