//go:build unix

package harness

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stored is a message of a stream.
type stored struct {
	order
	Subject, MessageID string
	InStream           string
	Seq                uint64
	At                 time.Time
	Problem            string // why the message is no event of ours
}

// brokerState is what the broker holds.
type brokerState struct {
	messages []stored
	windows  map[string]time.Duration // duplicate window by stream
}

// readBroker reads every stream from its first message to its last.
func readBroker(url string) (brokerState, error) {
	state := brokerState{windows: map[string]time.Duration{}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	nc, err := nats.Connect(url, nats.Timeout(5*time.Second))
	if err != nil {
		return state, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return state, err
	}
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		state.windows[info.Config.Name] = info.Config.Duplicates
		messages, err := readStream(ctx, js, info)
		if err != nil {
			return state, fmt.Errorf("stream %s: %w", info.Config.Name, err)
		}
		state.messages = append(state.messages, messages...)
	}
	return state, streams.Err()
}

func readStream(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo) ([]stored, error) {
	if info.State.Msgs == 0 {
		return nil, nil
	}
	consumer, err := js.OrderedConsumer(ctx, info.Config.Name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	it, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer it.Stop()
	var all []stored
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("after %d messages: %w", len(all), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		s := decode(m)
		s.InStream, s.Seq, s.At = info.Config.Name, meta.Sequence.Stream, meta.Timestamp
		all = append(all, s)
		if meta.Sequence.Stream >= info.State.LastSeq {
			return all, nil
		}
	}
}

// decode reads a message as a consumer in another language would: by the
// CloudEvents binding, without the relay's own code.
func decode(m jetstream.Msg) stored {
	h := m.Headers()
	s := stored{Subject: m.Subject(), MessageID: h.Get("Nats-Msg-Id")}
	if strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents+json") {
		s.Problem = s.structured(m.Data())
	} else {
		s.Problem = s.binary(h, m.Data())
	}
	var err error
	if s.Tenant, err = url.PathUnescape(h.Get("Outbox-Tenant")); err != nil || s.Tenant == "" {
		s.Problem = fmt.Sprintf("header Outbox-Tenant %q", h.Get("Outbox-Tenant"))
	}
	if s.Stream, err = url.PathUnescape(h.Get("Outbox-Stream")); err != nil || s.Stream == "" {
		s.Problem = fmt.Sprintf("header Outbox-Stream %q", h.Get("Outbox-Stream"))
	}
	return s
}

func (s *stored) binary(h nats.Header, data []byte) (problem string) {
	for name, into := range map[string]*string{"ce-id": &s.ID, "ce-source": &s.Source, "ce-type": &s.Type} {
		value, err := url.PathUnescape(h.Get(name))
		if err != nil || value == "" {
			return fmt.Sprintf("header %s %q", name, h.Get(name))
		}
		*into = value
	}
	if h.Get("ce-specversion") != "1.0" {
		return fmt.Sprintf("header ce-specversion %q", h.Get("ce-specversion"))
	}
	s.Body = digest(data)
	return ""
}

// structured leaves Body unknown: the envelope spells JSON data in its own order.
func (s *stored) structured(payload []byte) (problem string) {
	var e struct{ ID, Source, Type string }
	if err := json.Unmarshal(payload, &e); err != nil {
		return err.Error()
	}
	s.ID, s.Source, s.Type = e.ID, e.Source, e.Type
	return ""
}

// messageID computes the documented message id: SHA-256 over tenant, source and
// id, each after its length as a 64-bit big-endian count.
func messageID(i Identity) string {
	h := sha256.New()
	for _, part := range []string{i.Tenant, i.Source, i.ID} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}
