//go:build unix

// Package harness runs the built relay and the processes around it, and judges
// afterwards what became of every event.
//
// A test package that uses it has a TestMain that calls [Main]: the test binary
// plays the other processes too (a producer, a holder of the writer lock).
// Nothing here sleeps for a fixed time; [Eventually] polls against a deadline.
package harness

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds waits for things that should happen soon.
const Patience = 30 * time.Second

const (
	roleEnv = "RELAY_TEST_ROLE"
	argsEnv = "RELAY_TEST_ARGS"
)

// roles are the processes that the test binary can play.
var roles = map[string]func(ctx context.Context, args string) error{
	"producer": playProducer,
	"locker":   playLocker,
}

// Main runs the tests, or plays a role when the environment names one.
func Main(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := roles[role](ctx, os.Getenv(argsEnv)); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		return
	}
	waitTogether()
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

// waitTogether lets more tests run at a time than there are processors, unless
// the command line says how many: they mostly wait for other processes.
func waitTogether() {
	flag.Parse()
	parallel := flag.Lookup("test.parallel")
	if parallel.Value.String() == parallel.DefValue {
		_ = flag.Set(parallel.Name, "6") // a number it takes
	}
}

// roleArgs is the environment that makes the test binary play role.
func roleArgs(tb testing.TB, role string, args any) []string {
	tb.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		tb.Fatal(err)
	}
	return []string{roleEnv + "=" + role, argsEnv + "=" + string(text)}
}

// buildDir holds the built relay for one run of the test binary.
var buildDir string

var build = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "relay-test-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "relay")
	cmd := exec.Command("go", "build", "-o", path, "github.com/outbox-relay/relay/cmd/relay")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// Binary is the path of the relay, built once for each test run.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatalf("harness: %v", err)
	}
	return path
}

// Eventually polls until holds says yes and fails the test after within, with
// what was waited for and the state that holds last told.
func Eventually(tb testing.TB, within time.Duration, what string, holds func() (ok bool, state string)) {
	tb.Helper()
	end := time.Now().Add(within)
	for {
		ok, state := holds()
		if ok {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("harness: not within %v: %s; last seen: %s", within, what, state)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Steadily polls for as long as d and fails the test as soon as holds says no.
func Steadily(tb testing.TB, d time.Duration, what string, holds func() (ok bool, state string)) {
	tb.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok, state := holds(); !ok {
			tb.Fatalf("harness: should stay true: %s; seen: %s", what, state)
		}
	}
}

// Heavy skips a test that takes more than a few seconds under -short.
func Heavy(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("takes too long for -short: real processes under load")
	}
}

// logFile is a new file name in the test's directory.
func logFile(tb testing.TB, name string) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), strings.ReplaceAll(name, "/", "_")+".log")
}
