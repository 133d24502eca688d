package natstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
)

func TestServerKeepsPortAndStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := natstest.Start(t, natstest.Options{})
	js := s.JetStream()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(ctx, "s.a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	s.Freeze()
	if err := js.Conn().FlushTimeout(100 * time.Millisecond); err == nil {
		t.Error("a frozen server answered a ping")
	}
	s.Thaw()
	if err := js.Conn().FlushTimeout(10 * time.Second); err != nil {
		t.Errorf("a thawed server does not answer: %v", err)
	}
	s.Kill()
	s.Restart()
	st, err := s.JetStream().Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := st.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages after kill and restart, want 1", n)
	}
}

func TestReloadTakesNewConfig(t *testing.T) {
	s := natstest.Start(t, natstest.Options{NoJetStream: true})
	s.SetConfig("max_payload: 4096")
	s.Reload()
	nc := s.Conn(nats.NoReconnect())
	if nc.MaxPayload() != 4096 {
		t.Errorf("max_payload %d, want 4096", nc.MaxPayload())
	}
}
