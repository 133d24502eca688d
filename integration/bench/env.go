//go:build unix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"

	"github.com/outbox-relay/relay/integration/process"
	"github.com/outbox-relay/relay/outbox"
)

// bench is one run of the program.
type bench struct {
	sizes
	dir, relay, natsServer string
	natsVersion, commit    string
	figures                []figure
	children               []*process.Process
	count                  int     // of files made
	drained                float64 // rows/s of this run
}

const root = "../.." // the main module, from this one

func (b *bench) setUp(ctx context.Context) error {
	var err error
	if b.dir, err = os.MkdirTemp("", "relay-bench-"); err != nil {
		return err
	}
	b.relay, b.commit = filepath.Join(b.dir, "relay"), commit()
	if _, err := command(ctx, root, "go", "build", "-o", b.relay, "./cmd/relay"); err != nil {
		return err
	}
	path, err := command(ctx, root, "go", "tool", "-n", "nats-server")
	if err != nil {
		return err
	}
	b.natsServer = strings.TrimSpace(path)
	v, err := command(ctx, "", b.natsServer, "--version")
	b.natsVersion = strings.TrimPrefix(strings.TrimSpace(v), "nats-server: ")
	return err
}

func (b *bench) tearDown() error {
	b.stopAll()
	return os.RemoveAll(b.dir)
}

// stopAll ends what the last part started.
func (b *bench) stopAll() {
	for _, c := range b.children {
		c.Kill()
	}
	b.children = nil
}

func (b *bench) path(name string) string {
	b.count++
	return filepath.Join(b.dir, fmt.Sprintf("%d-%s", b.count, name))
}

func (b *bench) start(path string, env []string, args ...string) (*process.Process, error) {
	c, err := process.Start(process.Spec{Path: path, Args: args, Env: env, Log: b.path("log")})
	if err == nil {
		b.children = append(b.children, c)
	}
	return c, err
}

// broker is a nats-server with one stream for "ev.>".
type broker struct {
	url    string
	server *process.Process
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

func (b *bench) startBroker(ctx context.Context) (*broker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	k := &broker{url: "nats://127.0.0.1:" + port}
	if k.server, err = b.start(b.natsServer, nil, "-a", "127.0.0.1", "-p", port, "-js", "-sd", b.path("jetstream")); err != nil {
		return nil, err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if k.nc, err = nats.Connect(k.url); err == nil {
			break
		}
		if !k.server.Running() || time.Now().After(end) {
			return nil, fmt.Errorf("nats-server: %w: %s", err, k.server.Tail(3))
		}
	}
	if k.js, err = jetstream.New(k.nc); err != nil {
		return nil, err
	}
	k.stream, err = k.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "EVENTS", Subjects: []string{"ev.>"}, Duplicates: 2 * time.Minute, Storage: jetstream.FileStorage,
	})
	return k, err
}

func (k *broker) stop() {
	k.nc.Close()
	k.server.Kill()
}

// stored is the number of messages in the stream.
func (k *broker) stored(ctx context.Context) (int, error) {
	info, err := k.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

const config = `
[outbox]
path = %q
[nats]
urls = [%q]
[relay]
%s
[[route]]
subject = "ev.{tenant}.{stream}"
expect_stream = "EVENTS"
[metrics]
listen = "127.0.0.1:%s"
[log]
level = "warn"
`

// daemon is a relay process.
type daemon struct {
	*process.Process
	metrics string
}

// startRelay starts a relay at its default configuration.
func (b *bench) startRelay(k *broker, db string) (*daemon, error) { return b.startRelayWith(k, db, "") }

// startRelayWith adds lines to [relay] of the configuration.
func (b *bench) startRelayWith(k *broker, db, settings string) (*daemon, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	path := b.path("relay.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, config, db, k.url, settings, port), 0o600); err != nil {
		return nil, err
	}
	p, err := b.start(b.relay, nil, "run", "--config", path)
	return &daemon{p, "http://127.0.0.1:" + port + "/metrics"}, err
}

// stop ends the relay as a service manager would.
func (d *daemon) stop(ctx context.Context) error {
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := d.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay exits %d: %s", code, d.Tail(3))
	}
	return err
}

// metric reads one unlabelled metric; 0 if it is not there.
func (d *daemon) metric(name string) (float64, error) {
	r, err := http.Get(d.metrics)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}

// cpu is the time that a process has spent on the processors.
func cpu(pid int) time.Duration {
	var total time.Duration
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		field, _, _ := strings.Cut(string(text), " ")
		ns, _ := strconv.ParseInt(field, 10, 64)
		total += time.Duration(ns)
	}
	return total
}

// status is a field of /proc/PID/status in KiB.
func status(pid int, field string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			v, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return v
		}
	}
	return 0
}

// newOutbox makes a file with the schema.
func (b *bench) newOutbox(ctx context.Context) (string, error) {
	path := b.path("outbox.db")
	_, err := outbox.Migrate(ctx, path, outbox.MigrateOptions{Create: true})
	return path, err
}

// openApp opens a file as an application would.
func openApp(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(normal)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func event(id string, data []byte) outbox.Event {
	return outbox.Event{
		Tenant: "acme", Stream: "orders", ID: id, Source: "/orders/service", Type: "com.example.order.placed",
		Subject: "order-4711", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ContentType: "application/json",
		Data: outbox.JSON(data),
	}
}

// payload is a JSON string of n bytes.
func payload(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }

// fill enqueues n events of the given size, each changed by change if that is not nil.
func fill(ctx context.Context, path string, n, size int, change func(i int, e *outbox.Event)) error {
	db, err := openApp(path)
	if err != nil {
		return err
	}
	defer db.Close()
	data, perTx := payload(size), max(1, min(1000, 8<<20/size))
	for first := 0; first < n; first += perTx {
		list := make([]outbox.Event, 0, perTx)
		for i := first; i < min(n, first+perTx); i++ {
			e := event(fmt.Sprintf("%s-%012d", filepath.Base(path), i), data)
			if change != nil {
				change(i, &e)
			}
			list = append(list, e)
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := outbox.EnqueueAll(ctx, tx, list, outbox.MaxSize(4<<20)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// filled is a new file with n pending events.
func (b *bench) filled(ctx context.Context, n, size int) (string, error) {
	path, err := b.newOutbox(ctx)
	if err == nil {
		err = fill(ctx, path, n, size, nil)
	}
	return path, err
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// role starts this program as another process that does one thing.
func (b *bench) role(name string, options any) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	return b.start(self, []string{roleEnv + "=" + name, optionsEnv + "=" + string(text)})
}
