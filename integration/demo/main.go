//go:build unix

// Command demo shows the whole way of an event on one machine: a producer
// process commits orders with their events to a new SQLite file and rolls some
// back, the relay publishes them to a real nats-server, and a consumer prints
// some of what arrives. It ends by itself with a summary, and with exit code 1
// when the numbers do not add up. Nothing is left behind.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outbox-relay/relay/integration/workload"
)

// producerEnv makes the program play the producer; its value is the options.
const producerEnv = "RELAY_DEMO_PRODUCER"

const (
	orders   = 2000
	patience = 30 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if args := os.Getenv(producerEnv); args != "" {
		exit(produce(ctx, args))
	}
	exit(demo(ctx))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// produce is the application: another process than the relay.
func produce(ctx context.Context, args string) error {
	var o workload.Options
	if err := json.Unmarshal([]byte(args), &o); err != nil {
		return err
	}
	r, err := workload.Run(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func demo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "relay-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("building relay and nats-server (the first time takes a minute)")
	p, err := build(ctx, dir)
	if err != nil {
		return err
	}
	defer p.killAll()
	err = run(ctx, p)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		for _, c := range p.children {
			fmt.Fprintf(os.Stderr, "--- last lines of %s\n%s\n", c.name, c.Tail(10))
		}
	}
	return err
}

// run plays the demo from an empty directory to the summary.
func run(ctx context.Context, p *parts) error {
	started := time.Now()
	js, err := p.startBroker(ctx)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	if err := p.createDatabase(ctx); err != nil {
		return err
	}
	relay, err := p.startRelay()
	if err != nil {
		return err
	}
	arrivals, err := consume(ctx, js)
	if err != nil {
		return err
	}
	fmt.Printf("nats-server on %s, database %s\n", p.url, p.db)
	fmt.Println("a producer commits orders with their events; some transactions are rolled back")
	report, err := p.runProducer(ctx)
	if err != nil {
		return err
	}
	if err := arrivals.wait(ctx, report.Committed); err != nil {
		return err
	}
	code, err := relay.Stop(patience)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("the relay exits %d after SIGTERM", code)
	}
	s, err := summarize(ctx, p.db, js, report)
	if err != nil {
		return err
	}
	s.print(time.Since(started))
	return s.verdict()
}
