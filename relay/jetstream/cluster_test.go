package jetstream_test

import (
	"context"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// A cluster without quorum is an outage, whatever its last server still
// answers: nothing that waits for it may count as a failing message.
func TestClusterWithoutQuorum(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take their time")
	}
	servers := natstest.StartCluster(t, 3, "")
	js := servers[0].JetStream()
	cfg := natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}, Replicas: 3}
	eventually(t, "stream", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, cfg)
		return err == nil
	})
	st, err := js.Stream(t.Context(), "EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	var leader *natstest.Server
	var others []*natstest.Server
	for _, s := range servers {
		if s.Name() == st.CachedInfo().Cluster.Leader {
			leader = s
		} else {
			others = append(others, s)
		}
	}
	r := connect(t, leader, func(o *jetstream.Options) { o.PublishTimeout = 3 * time.Second })
	r.SetRoutes(routes(t, relay.Route{Subject: "ev.{type}"}))
	r.publish("ev.a")
	r.want(relay.Accepted, "")
	for _, s := range others {
		s.Kill()
	}
	seen := map[relay.Code]int{}
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		if _, err := r.tryPublish("ev.a"); err != nil {
			continue
		}
		res := r.result()
		seen[res.Code]++
		if res.Class != relay.Unavailable {
			t.Errorf("%v before the end: %+v", time.Until(end), res)
		}
	}
	t.Logf("%v", seen)
	for _, s := range others {
		s.Start()
	}
	eventually(t, "recovery", func() bool {
		if r.Probe(t.Context()) != nil {
			return false
		}
		r.publish("ev.a")
		return r.result().Class == relay.Accepted
	})
}
