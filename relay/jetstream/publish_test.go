package jetstream_test

import (
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/relay"
)

func TestAcceptedOnceAndDuplicate(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, nil)
	r.publish("ev.a", expecting("EVENTS"))
	if res := r.want(relay.Accepted, ""); res.Duplicate || !res.Sent {
		t.Errorf("%+v", res)
	}
	same := func(m *relay.Message) { m.ID = "same" }
	r.publish("ev.a", same)
	r.want(relay.Accepted, "")
	r.publish("ev.b", same)
	if res := r.want(relay.Accepted, ""); !res.Duplicate {
		t.Errorf("the second publish of one id is no duplicate: %+v", res)
	}
	if n := stored(t, st); n != 2 {
		t.Errorf("%d messages stored, want 2", n)
	}
}
