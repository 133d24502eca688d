//go:build unix

package harness

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/process"
	"github.com/outbox-relay/relay/integration/workload"
)

// Producer is a process that commits orders with their events.
type Producer struct {
	tb    testing.TB
	child *process.Process
}

// StartProducer starts one. The test's cleanup kills it.
func StartProducer(tb testing.TB, o workload.Options) *Producer {
	tb.Helper()
	return &Producer{tb: tb, child: startRole(tb, "producer", o)}
}

// Kill ends the producer wherever it is, perhaps within a transaction.
func (p *Producer) Kill() { p.child.Kill() }

// Stop asks the producer to end after its current transaction and returns its
// report.
func (p *Producer) Stop() workload.Report {
	p.tb.Helper()
	if _, err := p.child.Stop(Patience); err != nil {
		p.tb.Fatalf("harness: producer: %v", err)
	}
	return p.Wait(0)
}

// Wait waits until the producer has committed all its orders.
func (p *Producer) Wait(within time.Duration) workload.Report {
	p.tb.Helper()
	var r workload.Report
	waitRole(p.tb, p.child, within, &r)
	return r
}

func playProducer(ctx context.Context, args string) error {
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

func startRole(tb testing.TB, role string, args any) *process.Process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	child, err := process.Start(process.Spec{Path: self, Env: roleArgs(tb, role, args), Log: logFile(tb, role)})
	if err != nil {
		tb.Fatalf("harness: %v", err)
	}
	tb.Cleanup(child.Kill)
	return child
}

// waitRole waits for a role's end and decodes the last line of its output.
func waitRole(tb testing.TB, child *process.Process, within time.Duration, into any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), max(within, time.Millisecond))
	defer cancel()
	code, err := child.Wait(ctx)
	if err != nil {
		tb.Fatalf("harness: %v\n%s", err, child.Tail(5))
	}
	if code != 0 {
		tb.Fatalf("harness: exit %d: %s", code, child.Tail(5))
	}
	if err := json.Unmarshal([]byte(child.Tail(1)), into); err != nil {
		tb.Fatalf("harness: %v in %q", err, child.Tail(5))
	}
}
