//go:build unix

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/workload"
)

// Each bad file ends "relay run" with exit 1 and a line that names the file and
// what to do, and leaves the directory as it was.
func TestBadDatabaseEndsTheRelayAtOnce(t *testing.T) {
	cases := []struct {
		name   string
		make   func(t *testing.T, path string)
		remedy string
	}{
		{"a missing file", func(*testing.T, string) {}, "migrate --create"},
		{"an empty file", func(t *testing.T, path string) { write(t, path, "") }, "migrate"},
		{"a text file", func(t *testing.T, path string) {
			write(t, path, strings.Repeat("this is no database\n", 500))
		}, "no SQLite database"},
		{"a database without the schema", func(t *testing.T, path string) {
			write(t, path, "")
			if err := workload.Prepare(t.Context(), path); err != nil {
				t.Fatal(err)
			}
		}, "migrate"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "shop.db")
			c.make(t, path)
			before := names(t, dir)
			config := harness.WriteConfig(t, harness.Config{DB: path, URLs: []string{"nats://127.0.0.1:1"}}.TOML())
			wantRefusal(t, 1, []string{path, c.remedy}, "run", "--config", config)
			wantRefusal(t, 1, []string{path, c.remedy}, "status", "--db", path)
			if after := names(t, dir); after != before {
				t.Errorf("the directory holds %q, held %q", after, before)
			}
		})
	}
}

func TestBadConfigEndsTheRelayAtOnce(t *testing.T) {
	good := harness.Config{DB: "PATH", URLs: []string{"nats://127.0.0.1:1"}}.TOML()
	cases := []struct {
		name string
		text string
		want []string // parts of the message, beside the file's name
	}{
		{"an unknown key", good + "\n[outbx]\npath = \"x\"\n", []string{"outbx"}},
		{"a misspelt key", strings.Replace(good, "batch =", "bacth =", 1), []string{"bacth"}},
		{"a number without a unit", strings.Replace(good, `lease = "3s"`, "lease = 30", 1), []string{"lease"}},
		{"a word for a number", strings.Replace(good, "batch = 512", `batch = "many"`, 1), []string{"batch"}},
		{"a lease shorter than two publish timeouts", strings.Replace(good, `lease = "3s"`, `lease = "1500ms"`, 1), []string{"lease"}},
		{"an empty file", "", []string{"path"}},
		{"a key in the wrong table", strings.Replace(good, "[nats]", "[nats]\nlease = \"30s\"", 1), []string{"nats.lease"}},
		{"a unit in full", strings.Replace(good, `lease = "3s"`, `lease = "5seconds"`, 1), []string{"lease"}},
		{"a negative duration", strings.Replace(good, `lease = "3s"`, `lease = "-3s"`, 1), []string{"lease"}},
		{"a huge duration", strings.Replace(good, `lease = "3s"`, `lease = "900000h"`, 1), []string{"lease"}},
		{"no duration", strings.Replace(good, `drain = "5s"`, `drain = "0s"`, 1), []string{"drain"}},
		{"a negative number", strings.Replace(good, "max_attempts = 20", "max_attempts = -1", 1), []string{"max_attempts"}},
		{"a batch of nothing", strings.Replace(good, "batch = 512", "batch = 0", 1), []string{"batch"}},
		{"an empty log level", strings.Replace(good, `level = "info"`, `level = ""`, 1), []string{"level"}},
		{"an unknown log level", strings.Replace(good, `level = "info"`, `level = "verbose"`, 1), []string{"level"}},
		{"a log that is off", strings.Replace(good, `level = "info"`, `level = "disabled"`, 1), []string{"level"}},
		{"a template of empty tokens", strings.Replace(good, `"ev.{stream}"`, `"ev..{stream}"`, 1), []string{"route[0].subject", "empty token"}},
		{"a template of wildcards", strings.Replace(good, `"ev.{stream}"`, `"ev.*.{stream}"`, 1), []string{"route[0].subject", "wildcard"}},
		{"a reserved prefix", strings.Replace(good, `"ev.{stream}"`, `"$JS.API.{stream}"`, 1), []string{"route[0].subject", "$JS"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			config := harness.WriteConfig(t, strings.Replace(c.text, "PATH", filepath.Join(dir, "shop.db"), 1))
			wantRefusal(t, 2, append(c.want, config), "run", "--config", config)
			wantRefusal(t, 2, append(c.want, config), "check", "--config", config)
			if left := names(t, dir); left != "" {
				t.Errorf("the directory holds %q", left)
			}
		})
	}
	t.Run("a missing config", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "none.toml")
		wantRefusal(t, 2, []string{path}, "run", "--config", path)
	})
}

// wantRefusal runs a command that has to fail with code and a message on stderr
// that has all parts.
func wantRefusal(t *testing.T, code int, parts []string, args ...string) {
	t.Helper()
	ran := harness.Run(t, "", args...)
	if ran.Code != code {
		t.Errorf("relay %s exits %d, want %d; stderr: %s", args[0], ran.Code, code, ran.Stderr)
	}
	for _, part := range parts {
		if !strings.Contains(ran.Stderr, part) {
			t.Errorf("relay %s: stderr %q does not have %q", args[0], ran.Stderr, part)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// names lists the files in dir.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}
