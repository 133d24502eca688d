//go:build unix

package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/process"
)

// Config is a relay's configuration with short times, so that tests see leases
// expire and backoffs pass. Zero fields take the values in brackets.
type Config struct {
	DB   string
	URLs []string

	Worker         string        // [the relay's own default]
	Tenant         string        // [all]
	Lease          time.Duration // [3s]
	PublishTimeout time.Duration // [1s]
	Drain          time.Duration // [5s]
	BackoffInitial time.Duration // [100ms]
	BackoffMax     time.Duration // [1s]
	MaxAttempts    int           // [20]
	Batch          int           // [512]
	InFlight       int           // [2048]
	Mode           string        // [binary]
	Subject        string        // the only route's template ["ev.{stream}"]
	Metrics        string        // listen address [off]

	Outbox string // more lines of the [outbox] table
	NATS   string // more lines of the [nats] table
	Extra  string // more tables
}

// TOML is the configuration as text.
func (c Config) TOML() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("[outbox]\npath = %q\ntenant = %q\nworker = %q\n%s", c.DB, c.Tenant, c.Worker, c.Outbox)
	line("[relay]\nbatch = %d\nin_flight = %d", or(c.Batch, 512), or(c.InFlight, 2048))
	line("lease = %q\ndrain = %q", or(c.Lease, 3*time.Second).String(), or(c.Drain, 5*time.Second).String())
	line("max_attempts = %d", or(c.MaxAttempts, 20))
	line("[relay.backoff]\ninitial = %q\nmax = %q",
		or(c.BackoffInitial, 100*time.Millisecond).String(), or(c.BackoffMax, time.Second).String())
	line("[nats]\nurls = [%s]", quoted(c.URLs))
	line("publish_timeout = %q\nmode = %q\n%s", or(c.PublishTimeout, time.Second).String(), or(c.Mode, "binary"), c.NATS)
	line("[[route]]\nsubject = %q", or(c.Subject, "ev.{stream}"))
	line("[metrics]\nlisten = %q", c.Metrics)
	line("[log]\nlevel = \"info\"\nformat = \"json\"\n%s", c.Extra)
	return b.String()
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func quoted(list []string) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(parts, ", ")
}

// WriteConfig writes text to a new file of the test and returns its path.
func WriteConfig(tb testing.TB, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "relay.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Relay is one "relay run" that can be ended in every way and started again.
type Relay struct {
	tb     testing.TB
	name   string
	config string
	log    string
	faults *Journal
	child  *process.Process
	before int // length of the log when child was started
}

// StartRelay starts a relay and returns at once. Kills and freezes are recorded
// in faults. The test's cleanup kills it.
func StartRelay(tb testing.TB, name string, c Config, faults *Journal) *Relay {
	tb.Helper()
	return StartRelayConfig(tb, name, c.TOML(), faults)
}

// StartRelayConfig is StartRelay with the configuration as text.
func StartRelayConfig(tb testing.TB, name, config string, faults *Journal) *Relay {
	tb.Helper()
	r := &Relay{
		tb: tb, name: name, faults: faults,
		config: WriteConfig(tb, config), log: logFile(tb, name),
	}
	tb.Cleanup(func() {
		if r.child == nil {
			return
		}
		r.child.Kill()
		if tb.Failed() {
			tb.Logf("log of %s:\n%s", name, r.child.Tail(40))
		}
	})
	r.Start()
	return r
}

// Start starts a relay that is not running. Its log goes on in the same file.
func (r *Relay) Start() {
	r.tb.Helper()
	if r.Running() {
		r.tb.Fatalf("harness: %s is already running", r.name)
	}
	if r.child != nil {
		r.before = len(r.Log())
	}
	child, err := process.Start(process.Spec{
		Path: Binary(r.tb), Args: []string{"run", "--config", r.config}, Log: r.log,
	})
	if err != nil {
		r.tb.Fatalf("harness: %v", err)
	}
	r.child = child
}

// Running tells whether the process has been started and has not ended.
func (r *Relay) Running() bool { return r.child != nil && r.child.Running() }

// PID is the process id of the last start.
func (r *Relay) PID() int { return r.child.PID() }

// Log is what every run of this relay has written.
func (r *Relay) Log() string { return r.child.Output() }

// Kill ends the relay with SIGKILL.
func (r *Relay) Kill() {
	r.faults.Record(r.name + " killed")
	r.child.Kill()
}

// Freeze stops the process (SIGSTOP) until Thaw.
func (r *Relay) Freeze() {
	r.tb.Helper()
	r.faults.Record(r.name + " frozen")
	r.signal(syscall.SIGSTOP)
}

// Thaw lets a frozen relay go on.
func (r *Relay) Thaw() { r.tb.Helper(); r.signal(syscall.SIGCONT) }

// Terminate sends SIGTERM and does not wait.
func (r *Relay) Terminate() { r.tb.Helper(); r.signal(syscall.SIGTERM) }

func (r *Relay) signal(sig syscall.Signal) {
	r.tb.Helper()
	if err := r.child.Signal(sig); err != nil {
		r.tb.Fatalf("harness: signal %v to %s: %v", sig, r.name, err)
	}
}

// Stop sends SIGTERM, waits for the end, and fails the test unless the exit
// code is 0. A process that was just started and has not said a word may die of
// the signal: it had not begun.
func (r *Relay) Stop() {
	r.tb.Helper()
	r.Terminate()
	if code := r.WaitExit(Patience); code != 0 && (code != -1 || len(r.Log()) > r.before) {
		r.tb.Fatalf("harness: %s exits %d after SIGTERM:\n%s", r.name, code, r.child.Tail(20))
	}
}

// StopAnyhow is Stop where somebody else may hold the writer lock for all of the
// drain: a relay that then says which rows it leaves claimed, and exits 1, is as
// good, and recorded as a fault.
func (r *Relay) StopAnyhow() {
	r.tb.Helper()
	r.Terminate()
	code := r.WaitExit(Patience)
	said := r.Log()[r.before:]
	switch {
	case code == 0, code == -1 && said == "":
	case code == 1 && strings.Contains(said, "rows left claimed"):
		r.faults.Record(r.name + " left rows claimed")
	default:
		r.tb.Fatalf("harness: %s exits %d after SIGTERM:\n%s", r.name, code, r.child.Tail(20))
	}
}

// WaitExit waits for the relay's end and returns its exit code, -1 for a death
// by signal.
func (r *Relay) WaitExit(within time.Duration) int {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	code, err := r.child.Wait(ctx)
	if err != nil {
		r.tb.Fatalf("harness: %s: %v", r.name, err)
	}
	return code
}

// Ran is the outcome of one command.
type Ran struct {
	Code           int
	Stdout, Stderr string
}

// Run runs one relay command to its end.
func Run(tb testing.TB, stdin string, args ...string) Ran {
	tb.Helper()
	binary := Binary(tb) // building it may take longer than the command is given
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		tb.Fatalf("harness: relay %s does not end; stderr:\n%s", strings.Join(args, " "), stderr.String())
	}
	if cmd.ProcessState == nil {
		tb.Fatalf("harness: relay %s: %v", strings.Join(args, " "), err)
	}
	return Ran{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// MustRun is Run for a command that has to exit 0.
func MustRun(tb testing.TB, args ...string) Ran {
	tb.Helper()
	ran := Run(tb, "", args...)
	if ran.Code != 0 {
		tb.Fatalf("harness: relay %s exits %d: %s", strings.Join(args, " "), ran.Code, ran.Stderr)
	}
	return ran
}
