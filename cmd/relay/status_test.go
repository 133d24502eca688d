package main

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/outbox-relay/relay/outbox"
)

func TestWatchEndsWithAnInterrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.db")
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "relay", "status", "--db", path, "--watch", "--every", "100ms", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := range 3 {
		if !lines.Scan() {
			t.Fatalf("%d lines, then %v", i, lines.Err())
		}
		var r statusReport
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil || r.Database != path {
			t.Errorf("line %q: %v", lines.Text(), err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // to the end of its output
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
