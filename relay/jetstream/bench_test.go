package jetstream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

const (
	benchWindow  = 1024
	benchPayload = 1024
)

func benchEvent() outbox.Event {
	return outbox.Event{
		Tenant: "acme", Stream: "orders.v1", ID: "0197c3a0-7a3c-7c2e-9d51-2f6a5c0b1e77", Source: "/orders/service",
		Type: "com.example.order.placed", Subject: "order-4711", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		ContentType: "application/json", PartitionKey: "customer-17",
		Data: outbox.JSON(append(append([]byte(`{"pad":"`), make([]byte, benchPayload)...), `"}`...)),
	}
}

// BenchmarkPublisher is the publisher alone, with a window of 1024.
func BenchmarkPublisher(b *testing.B) {
	s := natstest.Start(b, natstest.Options{})
	stream(b, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(b, s, func(o *jetstream.Options) { o.RoutingHeaders, o.PublishTimeout = true, 10*time.Second })
	e := benchEvent()
	m := &relay.Message{Subject: "ev.acme.orders.v1", ExpectStream: "EVENTS", Event: &e}
	b.ReportAllocs()
	b.SetBytes(benchPayload)
	window := make(chan struct{}, benchWindow)
	done := make(chan relay.Result, benchWindow)
	ended := make(chan error)
	go func() {
		for range b.N {
			if res := <-done; res.Class != relay.Accepted {
				b.Errorf("%+v", res)
			}
			<-window
		}
		ended <- nil
	}()
	b.ResetTimer()
	for i := range b.N {
		window <- struct{}{}
		m.Row, m.ID = int64(i), fmt.Sprintf("%064x", i)
		if err := r.Publish(b.Context(), m, done); err != nil {
			b.Fatal(err)
		}
	}
	<-ended
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkBareLoop is the least that can be done with the library: the same
// message again and again, and answers that are only counted.
func BenchmarkBareLoop(b *testing.B) {
	s := natstest.Start(b, natstest.Options{})
	stream(b, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	nc := s.Conn()
	inbox := nc.NewInbox()
	e := benchEvent()
	msg := &nats.Msg{Subject: "ev.acme.orders.v1", Reply: inbox, Data: e.Data.Bytes(), Header: nats.Header{
		"Nats-Expected-Stream": {"EVENTS"}, "Outbox-Tenant": {e.Tenant}, "Outbox-Stream": {e.Stream},
	}}
	for _, a := range e.AppendAttributes(nil) {
		msg.Header["ce-"+a.Name] = []string{a.Value}
	}
	id := []string{""}
	msg.Header["Nats-Msg-Id"] = id
	window := make(chan struct{}, benchWindow)
	ended := make(chan struct{})
	answers := 0
	sub, err := nc.Subscribe(inbox, func(*nats.Msg) {
		<-window
		if answers++; answers == b.N {
			close(ended)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	_ = sub.SetPendingLimits(-1, -1)
	b.ReportAllocs()
	b.SetBytes(benchPayload)
	b.ResetTimer()
	for i := range b.N {
		window <- struct{}{}
		id[0] = fmt.Sprintf("%064x", i)
		if err := nc.PublishMsg(msg); err != nil {
			b.Fatal(err)
		}
	}
	<-ended
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
