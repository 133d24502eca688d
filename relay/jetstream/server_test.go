package jetstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// rig is a publisher, where its results go, and its log.
type rig struct {
	*jetstream.Publisher
	t    testing.TB
	done chan relay.Result
	log  *logBuffer
	row  int64
}

// connect makes a publisher for s with quick reconnects and waits until it is
// usable.
func connect(t testing.TB, s *natstest.Server, change func(*jetstream.Options)) *rig {
	t.Helper()
	r := dial(t, s, change)
	r.waitUsable()
	return r
}

// dial makes a publisher and does not wait.
func dial(t testing.TB, s *natstest.Server, change func(*jetstream.Options)) *rig {
	t.Helper()
	log := new(logBuffer)
	o := jetstream.Options{
		URLs: []string{s.URL()}, Name: "test", PublishTimeout: 2 * time.Second,
		Backoff: relay.Backoff{Initial: 20 * time.Millisecond, Max: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2},
		Log:     zerolog.New(log),
	}
	if change != nil {
		change(&o)
	}
	p, err := jetstream.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &rig{Publisher: p, t: t, done: make(chan relay.Result, 1<<16), log: log}
}

func (r *rig) waitUsable() {
	r.t.Helper()
	eventually(r.t, "a usable connection", func() bool { return r.Usable() == nil })
}

// publish sends an event to subject.
func (r *rig) publish(subject string, change ...func(*relay.Message)) int64 {
	r.t.Helper()
	row, err := r.tryPublish(subject, change...)
	if err != nil {
		r.t.Fatalf("publish to %s: %v", subject, err)
	}
	return row
}

func (r *rig) tryPublish(subject string, change ...func(*relay.Message)) (int64, error) {
	r.row++
	e := &outbox.Event{
		Tenant: "acme", Stream: "orders", ID: fmt.Sprintf("e-%d", r.row), Source: "/test", Type: "t",
		ContentType: "application/json", Data: outbox.JSON([]byte(`{"a":1}`)),
	}
	m := &relay.Message{Row: r.row, Subject: subject, Event: e}
	for _, f := range change {
		f(m)
	}
	if m.ID == "" {
		m.ID = e.MessageID()
	}
	return r.row, r.Publish(r.t.Context(), m, r.done)
}

func withData(n int) func(*relay.Message) {
	return func(m *relay.Message) {
		m.Event.ContentType = "application/octet-stream"
		m.Event.Data = outbox.Binary(bytes.Repeat([]byte("x"), n))
	}
}

func expecting(stream string) func(*relay.Message) {
	return func(m *relay.Message) { m.ExpectStream = stream }
}

// result waits for the next result.
func (r *rig) result() relay.Result {
	r.t.Helper()
	select {
	case res := <-r.done:
		return res
	case <-time.After(patience):
		r.t.Fatal("no result")
		return relay.Result{}
	}
}

// want waits for the next result and compares it; detail are parts of its text.
func (r *rig) want(class relay.Class, code relay.Code, detail ...string) relay.Result {
	r.t.Helper()
	res := r.result()
	if res.Class != class || res.Code != code {
		r.t.Fatalf("result %v [%s] %q, want %v [%s]", res.Class, res.Code, res.Detail, class, code)
	}
	for _, d := range detail {
		if !strings.Contains(res.Detail, d) {
			r.t.Fatalf("detail %q lacks %q", res.Detail, d)
		}
	}
	return res
}

// wantNoMore checks that every result has come once.
func (r *rig) wantNoMore() {
	r.t.Helper()
	select {
	case res := <-r.done:
		r.t.Fatalf("another result: %+v", res)
	default:
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

func stream(t testing.TB, s *natstest.Server, cfg natsjs.StreamConfig, opts ...nats.Option) natsjs.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := s.JetStream(opts...).CreateStream(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func stored(t testing.TB, st natsjs.Stream) uint64 {
	t.Helper()
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// lines are the log's lines at level that hold text.
func (l *logBuffer) lines(level, text string) (found []string) {
	for line := range strings.Lines(l.String()) {
		var entry struct{ Level string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == level && strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func routes(t testing.TB, list ...relay.Route) *relay.Routes {
	t.Helper()
	r, err := relay.NewRoutes(list)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
