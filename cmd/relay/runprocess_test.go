package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// running is a relay process with what it told its service manager and its log.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	config string
	db     string

	mu    sync.Mutex
	log   bytes.Buffer
	told  []sent // notifications, by time since the process began
	began time.Time
	done  chan struct{}
}

// startRelay starts `relay run` on a new database with config, in which %DB%
// stands for the database and %NATS% for url. The environment is added to.
func startRelay(t *testing.T, url, config string, env ...string) *running {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	r := &running{t: t, db: filepath.Join(dir, "o.db"), config: filepath.Join(dir, "relay.toml"), done: make(chan struct{})}
	if _, err := outbox.Migrate(t.Context(), r.db, outbox.MigrateOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	r.write(config, url)
	socket := r.listen(dir)
	r.cmd = exec.Command("relay", "run", "--config", r.config)
	r.cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+socket), env...)
	r.cmd.Stderr = lockedWriter{&r.mu, &r.log}
	r.began = time.Now()
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // the exit code is read from ProcessState
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.done
		if t.Failed() {
			t.Logf("log:\n%s\ntold: %v", r.text(), r.notes(""))
		}
	})
	return r
}

func (r *running) write(config, url string) {
	r.t.Helper()
	text := strings.NewReplacer("%DB%", r.db, "%NATS%", url).Replace(config)
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// listen is the service manager: it records datagrams.
func (r *running) listen(dir string) string {
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			r.mu.Lock()
			r.told = append(r.told, sent{time.Since(r.began), string(buf[:n])})
			r.mu.Unlock()
		}
	}()
	return path
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *running) notes(prefix string) []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := manager{list: r.told}
	return m.of(prefix)
}

// wait polls until holds.
func (r *running) wait(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (r *running) waitTold(prefix string) {
	r.t.Helper()
	r.wait(prefix, func() bool { return len(r.notes(prefix)) > 0 })
}

// exit waits for the end of the process and returns its exit code.
func (r *running) exit() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		r.t.Fatal("still running")
	}
	return r.cmd.ProcessState.ExitCode()
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// enqueue commits n new events.
func (r *running) enqueue(n int) {
	r.t.Helper()
	db := outboxtest.Producer(r.t, r.db)
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = outbox.Event{Tenant: "t", Stream: "s", ID: fmt.Sprintf("%d-%d", time.Now().UnixNano(), i), Source: "/x", Type: "a"}
	}
	outboxtest.Enqueue(r.t, db, events...)
}

// delivered counts delivered rows.
func (r *running) delivered() (n int) {
	r.t.Helper()
	out, err := exec.Command("relay", "list", "--db", r.db, "--state", "delivered", "--limit", "0", "--json").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Count(string(out), "\n")
}

// pings checks that the watchdog was fed at least twice an interval from READY
// to now.
func (r *running) pings(interval time.Duration) {
	r.t.Helper()
	ready := r.notes("READY=1")
	if len(ready) == 0 {
		r.t.Fatal("not ready")
	}
	last, now := ready[0].at, time.Since(r.began)
	for _, s := range r.notes("WATCHDOG=1") {
		if s.at-last > interval/2 {
			r.t.Errorf("no ping from %v to %v, more than half of %v", last, s.at, interval)
		}
		last = s.at
	}
	if now-last > interval/2 {
		r.t.Errorf("no ping from %v to %v", last, now)
	}
}

const simpleConfig = `
[outbox]
path = "%DB%"
busy_timeout = "300ms"
busy_retries = 0
[relay]
lease = "2s"
drain = "2s"
[relay.backoff]
initial = "100ms"
max = "1s"
[nats]
urls = ["%NATS%"]
publish_timeout = "1s"
[[route]]
subject = "ev.{stream}.{type}"
`

// broker is a nats-server with a stream for what the tests publish.
func broker(t *testing.T) *natstest.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := natstest.Start(t, natstest.Options{})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EV", Subjects: []string{"ev.>"}}); err != nil {
		t.Fatal(err)
	}
	return s
}
