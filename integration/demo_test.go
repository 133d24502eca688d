//go:build unix

package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/process"
)

// The demo ends by itself with numbers that add up, and leaves nothing behind,
// interrupted or not.
func TestDemo(t *testing.T) {
	harness.Heavy(t)
	binary := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.Command("go", "build", "-o", binary, "./demo").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name      string
		interrupt bool
		code      int
		want      string
	}{
		{"to its end", false, 0, "every committed event arrived once, and nothing else did"},
		{"interrupted", true, 1, "demo: interrupted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tmp := t.TempDir()
			demo, err := process.Start(process.Spec{
				Path: binary, Env: []string{"TMPDIR=" + tmp}, Log: filepath.Join(t.TempDir(), "demo.log"),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(demo.Kill)
			if c.interrupt {
				harness.Eventually(t, harness.Patience, "the demo runs", func() (bool, string) {
					return strings.Contains(demo.Output(), "a producer commits orders"), demo.Output()
				})
				if err := demo.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
			defer cancel()
			code, err := demo.Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if out := demo.Output(); code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit %d, want %d with %q:\n%s", code, c.code, c.want, out)
			}
			if left := names(t, tmp); left != "" {
				t.Errorf("the demo leaves %q", left)
			}
			if left := commandsWith(tmp); len(left) > 0 {
				t.Errorf("still running: %q", left)
			}
		})
	}
}

// commandsWith are the command lines of running processes that have text, where
// the system has /proc.
func commandsWith(text string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	var found []string
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), text) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
