//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/process"
	"github.com/outbox-relay/relay/integration/workload"
)

// parts are the programs of the demo and where they work.
type parts struct {
	dir, db, url      string
	relay, natsServer string // executables
	children          []child
}

type child struct {
	name string
	*process.Process
}

// build builds the relay and the nats-server of the module's tool dependency.
func build(ctx context.Context, dir string) (*parts, error) {
	p := &parts{dir: dir, db: filepath.Join(dir, "shop.db"), relay: filepath.Join(dir, "relay")}
	if _, err := command(ctx, "go", "build", "-o", p.relay, "github.com/outbox-relay/relay/cmd/relay"); err != nil {
		return nil, err
	}
	path, err := command(ctx, "go", "tool", "-n", "nats-server")
	p.natsServer = strings.TrimSpace(path)
	return p, err
}

func (p *parts) start(name, path string, env []string, args ...string) (*process.Process, error) {
	c, err := process.Start(process.Spec{Path: path, Args: args, Env: env, Log: filepath.Join(p.dir, name+".log")})
	if err == nil {
		p.children = append(p.children, child{name, c})
	}
	return c, err
}

func (p *parts) killAll() {
	for _, c := range p.children {
		c.Kill()
	}
}

// startBroker starts nats-server with JetStream on a free port and creates the
// stream.
func (p *parts) startBroker(ctx context.Context) (jetstream.JetStream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address) // a listener's own address
	p.url = "nats://" + address
	broker, err := p.start("nats-server", p.natsServer, nil,
		"-a", "127.0.0.1", "-p", port, "-js", "-sd", filepath.Join(p.dir, "jetstream"))
	if err != nil {
		return nil, err
	}
	nc, err := connect(ctx, p.url, broker)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: streamName, Subjects: []string{"events.>"}, Duplicates: 2 * time.Minute,
	})
	return js, err
}

func connect(ctx context.Context, url string, broker *process.Process) (*nats.Conn, error) {
	for end := time.Now().Add(patience); ; {
		nc, err := nats.Connect(url)
		switch {
		case err == nil:
			return nc, nil
		case !broker.Running():
			return nil, fmt.Errorf("nats-server ended: %s", broker.Tail(3))
		case time.Now().After(end):
			return nil, err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// createDatabase makes the file with the outbox and the application's tables.
func (p *parts) createDatabase(ctx context.Context) error {
	if _, err := command(ctx, p.relay, "migrate", "--create", "--db", p.db); err != nil {
		return err
	}
	return workload.Prepare(ctx, p.db)
}

const config = `
[outbox]
path = %q

[nats]
urls = [%q]

[[route]]
subject = "events.{stream}"
`

func (p *parts) startRelay() (*process.Process, error) {
	path := filepath.Join(p.dir, "relay.toml")
	if err := os.WriteFile(path, fmt.Appendf(nil, config, p.db, p.url), 0o600); err != nil {
		return nil, err
	}
	return p.start("relay", p.relay, nil, "run", "--config", path)
}

// runProducer runs the producer process to its end.
func (p *parts) runProducer(ctx context.Context) (workload.Report, error) {
	var r workload.Report
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	options, err := json.Marshal(workload.Options{
		DB: p.db, Name: "demo", Orders: orders, PerTx: 3, RollbackEvery: 10, Every: 5 * time.Millisecond,
		Tenants: []string{"acme", "globex"}, Streams: []string{"orders", "invoices"}, Payload: 40, Seed: 1,
	})
	if err != nil {
		return r, err
	}
	producer, err := p.start("producer", self, []string{producerEnv + "=" + string(options)})
	if err != nil {
		return r, err
	}
	code, err := producer.Wait(ctx)
	if err != nil {
		return r, err
	}
	if code != 0 {
		return r, fmt.Errorf("the producer exits %d", code)
	}
	return r, json.Unmarshal([]byte(producer.Tail(1)), &r)
}

func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go build removes its files
	cmd.WaitDelay = 5 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
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
