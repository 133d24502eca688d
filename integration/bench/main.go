//go:build unix

// Command bench measures the relay with real processes: a relay, a nats-server
// with a file stream, producers. It prints a table and writes it as Markdown.
// Absolute figures depend on the machine; what counts are ratios taken in
// one run. It is no test: a slow day fails nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// sizes say how much is measured.
type sizes struct {
	runs     int           // of which the median is taken
	rows     int           // of a drain
	peerRows int           // of a peer's drain
	span     time.Duration // of a measurement over time
	idle     time.Duration // before an event that ends idling
	backlog  int           // rows of the memory measurement
	large    int           // rows of 900 KiB
	shape    int           // rows of a large table
	enqueues int           // events of one enqueue measurement
}

var (
	full = sizes{
		runs: 3, rows: 100_000, peerRows: 4000, span: 10 * time.Second, idle: 30 * time.Second,
		backlog: 1_000_000, large: 300, shape: 1_000_000, enqueues: 20_000,
	}
	quick = sizes{
		runs: 1, rows: 30_000, peerRows: 1000, span: 3 * time.Second, idle: 5 * time.Second,
		backlog: 100_000, large: 100, shape: 100_000, enqueues: 4000,
	}
)

// parts of the benchmark, in their order.
var parts = []struct {
	name string
	run  func(context.Context, *bench) error
}{
	{"drain", measureDrain},
	{"peers", measurePeers},
	{"lag", measureLag},
	{"app", measureApp},
	{"enqueue", measureEnqueue},
	{"shapes", measureShapes},
	{"prune", measurePrune},
	{"memory", measureMemory},
}

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		if err := runRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	isQuick := flag.Bool("quick", false, "smaller and once: under two minutes")
	runs := flag.Int("runs", 0, "`times` that each part is run (default 3, with -quick 1)")
	only := flag.String("only", "", "`parts` to run, separated by commas")
	out := flag.String("o", "bench.md", "`file` for the table as Markdown")
	limit := flag.Duration("limit", 45*time.Minute, "end after this long")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	b := &bench{sizes: full}
	if *isQuick {
		b.sizes = quick
	}
	if *runs > 0 {
		b.runs = *runs
	}
	if err := b.setUp(ctx); err != nil {
		return errors.Join(err, b.tearDown())
	}
	err := b.measure(ctx, *only)
	err = errors.Join(err, b.tearDown())
	text := b.markdown()
	fmt.Print(text)
	return errors.Join(err, os.WriteFile(*out, []byte(text), 0o644))
}

// measure runs the parts, all of them once, then all of them again: neighbours
// in a ratio are measured close to each other.
func (b *bench) measure(ctx context.Context, only string) error {
	for n := range b.runs {
		for _, p := range parts {
			if only != "" && !strings.Contains(","+only+",", ","+p.name+",") {
				continue
			}
			began := time.Now()
			fmt.Fprintf(os.Stderr, "run %d of %d: %s", n+1, b.runs, p.name)
			err := p.run(ctx, b)
			fmt.Fprintf(os.Stderr, " %.0f s\n", time.Since(began).Seconds())
			b.stopAll()
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}
