package relay

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	_ "modernc.org/sqlite"

	"github.com/outbox-relay/relay/outbox"
)

// testFile is a new outbox file, and a producer's connection to it.
type testFile struct {
	path  string
	store *outbox.Store
	app   *sql.DB
	next  int
	spoil bool         // the test breaks the data's invariants itself
	clock atomic.Int64 // by how much the relay's clock has been set
}

// newFile makes an outbox. The relay's side of it has the test's clock, which in a
// bubble is a fake one; producers have SQLite's own. The first is set well ahead of the
// second, so that what is enqueued is due at once.
func newFile(tb testing.TB, o outbox.Options) *testFile {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	if _, err := outbox.Migrate(context.Background(), path, outbox.MigrateOptions{Create: true}); err != nil {
		tb.Fatal(err)
	}
	app, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		tb.Fatal(err)
	}
	app.SetMaxOpenConns(1)
	var real int64
	if err := app.QueryRow(`SELECT unixepoch()`).Scan(&real); err != nil {
		tb.Fatal(err)
	}
	ahead := time.Unix(real, 0).Add(time.Hour).Sub(time.Now())
	f := &testFile{path: path, app: app}
	o.Now = func() time.Time { return time.Now().Add(ahead + time.Duration(f.clock.Load())) }
	store, err := outbox.Open(context.Background(), path, o)
	if err != nil {
		tb.Fatal(err)
	}
	f.store = store
	tb.Cleanup(func() {
		f.check(tb)
		app.Close()
		store.Close()
	})
	return f
}

// check verifies the invariants of the data.
func (f *testFile) check(tb testing.TB) {
	tb.Helper()
	if f.spoil {
		return
	}
	findings, err := f.store.AllTenants().Check(context.Background(), 0)
	if err != nil {
		tb.Errorf("check: %v", err)
	}
	for _, x := range findings {
		tb.Errorf("row %d breaks %s: %s", x.Row, x.Rule, x.Detail)
	}
}

// exec changes the file behind the library's back.
func (f *testFile) exec(tb testing.TB, query string, args ...any) {
	tb.Helper()
	if _, err := f.app.Exec(query, args...); err != nil {
		tb.Fatal(err)
	}
}

// event is a valid event on a stream.
func (f *testFile) event(stream string) outbox.Event {
	f.next++
	return outbox.Event{
		Tenant: "acme", Stream: stream, ID: fmt.Sprint(f.next), Source: "/test", Type: "test.event",
		ContentType: "application/json", Data: outbox.JSON([]byte(`{"n":1}`)),
	}
}

// enqueue commits n events on a stream and returns their rows.
func (f *testFile) enqueue(tb testing.TB, stream string, n int) []int64 {
	tb.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = f.event(stream)
	}
	return f.commit(tb, events...)
}

func (f *testFile) commit(tb testing.TB, events ...outbox.Event) []int64 {
	tb.Helper()
	tx, err := f.app.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	receipts, err := outbox.EnqueueAll(context.Background(), tx, events, outbox.MaxSize(16<<20))
	if err != nil {
		tb.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	rows := make([]int64, len(receipts))
	for i, r := range receipts {
		rows[i] = r.Row
	}
	return rows
}

// delivery reads one row's delivery.
func (f *testFile) delivery(tb testing.TB, row int64) outbox.Delivery {
	tb.Helper()
	e, err := f.store.AllTenants().Get(context.Background(), row)
	if err != nil {
		tb.Fatal(err)
	}
	return e.Delivery
}

// count counts the rows in a state.
func (f *testFile) count(tb testing.TB, state outbox.State) int {
	tb.Helper()
	n, after := 0, int64(0)
	for {
		page, err := f.store.AllTenants().List(context.Background(), outbox.Filter{State: state, After: after}, 1000)
		if err != nil {
			tb.Fatal(err)
		}
		n += len(page)
		if len(page) < 1000 {
			return n
		}
		after = page[len(page)-1].Row
	}
}

// answer is what the fake broker does with a message.
type answer struct {
	Result
	after  time.Duration // of the result; 0: within Publish
	refuse error         // Publish fails
	never  bool          // no result until the broker is told to
}

var stored = answer{Result: Result{Class: Accepted, Sent: true}, after: 200 * time.Microsecond}

func answered(class Class, code Code) answer {
	return answer{Result: Result{Class: class, Code: code, Detail: "says the test", Sent: true}, after: time.Millisecond}
}

// fakeBroker is a Publisher whose behaviour a test sets.
type fakeBroker struct {
	mu       sync.Mutex
	behave   func(m *Message) answer // nil: stores everything
	usable   error
	probe    error
	probes   []time.Time
	copies   map[int64]int // messages that left, by row
	stored   map[int64]int // messages stored, by row
	ids      map[string]int64
	subjects map[int64]string
	waiting  []func(Result) // publishes without a result
	times    map[int64][]time.Time
}

func newBroker() *fakeBroker {
	return &fakeBroker{
		copies: make(map[int64]int), stored: make(map[int64]int), ids: make(map[string]int64),
		subjects: make(map[int64]string), times: make(map[int64][]time.Time),
	}
}

func (b *fakeBroker) Publish(_ context.Context, m *Message, done chan<- Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := stored
	if b.behave != nil {
		a = b.behave(m)
	}
	row := m.Row
	b.times[row] = append(b.times[row], time.Now())
	if a.refuse != nil {
		return a.refuse
	}
	a.Row = row
	if a.Sent {
		b.copies[row]++
		b.subjects[row] = m.Subject
		b.ids[m.ID] = row
	}
	finish := func(r Result) {
		if r.Class == Accepted {
			b.mu.Lock()
			b.stored[row]++
			b.mu.Unlock()
		}
		select {
		case done <- r:
		default:
			panic("no room for a result")
		}
	}
	switch {
	case a.never:
		b.waiting = append(b.waiting, func(r Result) { r.Row = row; finish(r) })
	case a.after > 0:
		time.AfterFunc(a.after, func() { finish(a.Result) })
	default:
		go finish(a.Result)
	}
	return nil
}

func (b *fakeBroker) Flush() error { return nil }

func (b *fakeBroker) Usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usable
}

func (b *fakeBroker) Probe(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes = append(b.probes, time.Now())
	return b.probe
}

// set changes the behaviour.
func (b *fakeBroker) set(fn func(b *fakeBroker)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn(b)
}

// answerAll gives every waiting publish its result.
func (b *fakeBroker) answerAll(r Result) {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, finish := range waiting {
		finish(r)
	}
}

func (b *fakeBroker) storedRows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.stored)
}

// publishedRows counts the rows that were handed to the broker.
func (b *fakeBroker) publishedRows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.times)
}

// probeTimes are the times of the probes.
func (b *fakeBroker) probeTimes() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.probes)
}

// published are the times at which a row was handed to the broker.
func (b *fakeBroker) published(row int64) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.times[row])
}

// noWatch makes the relay poll.
func noWatch(string) (Watcher, error) { return nil, errors.New("no watch in this test") }

// logBuffer collects the relay's log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines are the log lines, each decoded.
func (l *logBuffer) lines(tb testing.TB) []map[string]any {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range bytes.Lines(l.b.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			tb.Fatalf("log line %q: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// with are the lines whose message is msg.
func (l *logBuffer) with(tb testing.TB, msg string) []map[string]any {
	tb.Helper()
	var out []map[string]any
	for _, m := range l.lines(tb) {
		if m["message"] == msg {
			out = append(out, m)
		}
	}
	return out
}

// seam is an Outbox whose operations a test can fail or delay.
type seam struct {
	Outbox
	mu       sync.Mutex
	exchange func(ctx context.Context, batch []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error)
	same     error
	turns    int
	claims   int // turns that would claim
}

// fail makes every exchange fail with err, nil for none.
func (s *seam) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchange = nil
	if err != nil {
		s.exchange = func(context.Context, []outbox.Settlement, outbox.ClaimRequest) (outbox.Exchanged, error) {
			return outbox.Exchanged{}, err
		}
	}
}

// hang makes every exchange wait until its context ends.
func (s *seam) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exchange = func(ctx context.Context, _ []outbox.Settlement, _ outbox.ClaimRequest) (outbox.Exchanged, error) {
		<-ctx.Done()
		return outbox.Exchanged{}, ctx.Err()
	}
}

func (s *seam) Exchange(ctx context.Context, batch []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error) {
	s.mu.Lock()
	fn := s.exchange
	s.turns++
	if claim.Limit > 0 {
		s.claims++
	}
	s.mu.Unlock()
	if fn != nil {
		return fn(ctx, batch, claim)
	}
	return s.Outbox.Exchange(ctx, batch, claim)
}

func (s *seam) SameFile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.same
}

func (s *seam) counts() (turns, claims int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns, s.claims
}

// codeError is an error of SQLite.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("SQLite error %d", int(e)) }
func (e codeError) Code() int     { return int(e) }

// rig is a relay over a real file and a fake broker.
type rig struct {
	*testFile
	broker *fakeBroker
	seam   *seam
	relay  *Relay
	log    *logBuffer
	reg    *prometheus.Registry
	o      Options

	cancel context.CancelFunc
	ended  chan error
}

func testRoutes(tb testing.TB, routes ...Route) *Routes {
	tb.Helper()
	if routes == nil {
		routes = []Route{{Subject: "ev.{stream}"}}
	}
	r, err := NewRoutes(routes)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// newRig makes a relay that has not started.
func newRig(tb testing.TB, change func(o *Options)) *rig {
	tb.Helper()
	r := &rig{broker: newBroker(), log: &logBuffer{}, reg: prometheus.NewRegistry()}
	r.testFile = newFile(tb, outbox.Options{OnBusy: func(d time.Duration) { r.relay.Busy(d) }})
	r.seam = &seam{Outbox: file{handle: r.store.AllTenants(), store: r.store}}
	r.o = Options{
		Outbox: r.seam, Publisher: r.broker, Routes: testRoutes(tb),
		Log: zerolog.New(r.log), Worker: "test", MaxAttempts: -1, Watch: noWatch,
		Metrics: NewMetrics(r.reg),
	}
	if change != nil {
		change(&r.o)
	}
	var err error
	if r.relay, err = New(r.o); err != nil {
		tb.Fatal(err)
	}
	return r
}

// start runs the relay until stop, or the end of the test.
func (r *rig) start(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.relay.Run(ctx) }()
	tb.Cleanup(func() { r.stop(tb) })
}

// stop ends the relay and returns what Run returned.
func (r *rig) stop(tb testing.TB) error {
	tb.Helper()
	r.cancel()
	if r.ended == nil {
		return nil
	}
	err := <-r.ended
	r.ended = nil
	return err
}

// run makes a rig and runs fn beside its relay, in a bubble of fake time.
func run(t *testing.T, change func(o *Options), fn func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		r.start(t)
		fn(t, r)
	})
}

// eventually waits for cond, at most for d of the test's time.
func eventually(tb testing.TB, d time.Duration, what string, cond func() bool) {
	tb.Helper()
	end := time.Now().Add(d)
	for !cond() {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(min(d/100, 100*time.Millisecond))
	}
}

// metric reads a counter or gauge, or the count of a histogram; labels are name,
// value pairs. What does not exist is 0.
func (r *rig) metric(tb testing.TB, name string, labels ...string) float64 {
	tb.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				if !hasLabel(m.GetLabel(), labels[i], labels[i+1]) {
					continue next
				}
			}
			switch {
			case m.Counter != nil:
				return m.GetCounter().GetValue()
			case m.Gauge != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

func hasLabel[L interface {
	GetName() string
	GetValue() string
}](labels []L, name, value string) bool {
	return slices.ContainsFunc(labels, func(l L) bool { return l.GetName() == name && l.GetValue() == value })
}
