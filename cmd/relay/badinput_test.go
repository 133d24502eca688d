package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/outbox"
)

// ran is what one command line did.
type ran struct {
	code           int
	stdout, stderr string
}

// runCommand runs a command line inside this process.
func runCommand(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr}
	code := a.execute(t.Context(), args)
	return ran{code, stdout.String(), stderr.String()}
}

// oneError checks the form of an error: one line, and JSON where it was asked
// for.
func (r ran) oneError(t *testing.T, code int, json bool) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if !strings.HasPrefix(r.stderr, "relay: ") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("standard error %q", r.stderr)
	}
	if !json && r.stdout != "" {
		t.Errorf("standard output %q", r.stdout)
	}
	if json {
		r.jsonError(t)
	}
}

func (r ran) jsonError(t *testing.T) {
	t.Helper()
	var object struct{ Error string }
	if err := json.Unmarshal([]byte(r.stdout), &object); err != nil || object.Error == "" {
		t.Errorf("standard output %q: %v", r.stdout, err)
	}
}

// files has the content of every file below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// databaseCommands are the commands that take --db, with what else they need.
var databaseCommands = [][]string{
	{"migrate"}, {"check"}, {"status"}, {"list"}, {"show", "1"},
	{"enqueue", "--tenant", "t", "--stream", "s"},
	{"requeue", "1"}, {"requeue", "--all"}, {"quarantine", "1", "--reason", "r"},
	{"reconcile"}, {"reconcile", "--repair"}, {"prune", "--delivered", "1h"}, {"prune", "--delivered", "1h", "--dry-run"},
	{"export"}, {"import"},
}

func TestBadDatabasesAreOneErrorAndStayAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("empty.db", "")
	write("text.db", strings.Repeat("this is no database. ", 500))
	write("header.db", "SQLite format 3\x00"+strings.Repeat("\xff", 5000))
	if err := os.Mkdir(filepath.Join(dir, "directory.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	for _, name := range []string{"missing.db", "empty.db", "text.db", "header.db", "directory.db", "empty.db/below.db", "missing/o.db"} {
		for _, command := range databaseCommands {
			for _, json := range []bool{false, true} {
				args := append(append([]string{}, command...), "--db", filepath.Join(dir, name))
				if json {
					args = append(args, "--json")
				}
				t.Run(fmt.Sprint(name, command, json), func(t *testing.T) {
					r := runCommand(t, "", args...)
					r.oneError(t, exitFailed, json)
					if !strings.Contains(r.stderr, filepath.Join(dir, filepath.Dir(name))) {
						t.Errorf("does not name the file: %q", r.stderr)
					}
				})
			}
		}
	}
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Errorf("files changed: before %d, after %d", len(before), len(after))
	}
}

func TestForeignDatabasesStayAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "app.db")
	p, err := openUnchecked(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Exec("CREATE TABLE app (x); INSERT INTO app VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	for _, command := range databaseCommands[1:] { // migrate adds the outbox to such a file
		t.Run(fmt.Sprint(command), func(t *testing.T) {
			r := runCommand(t, "", append(append([]string{}, command...), "--db", path)...)
			r.oneError(t, exitFailed, false)
			if !strings.Contains(r.stderr, path) || !strings.Contains(r.stderr, "relay migrate") {
				t.Errorf("does not name file and remedy: %q", r.stderr)
			}
		})
	}
	if after := files(t, dir); !maps.Equal(before, after) {
		t.Error("files changed")
	}
}

func TestReadOnlyCommandsChangeNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "o.db")
	if _, err := outbox.Migrate(t.Context(), path, outbox.MigrateOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	events := `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	if r := runCommand(t, events, "enqueue", "--db", path, "--tenant", "t", "--stream", "s"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	// A writer would turn the file to write-ahead logging.
	db, err := openUnchecked(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA journal_mode = delete"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	for _, command := range [][]string{
		{"check"}, {"status"}, {"list"}, {"show", "1"}, {"reconcile"}, {"prune", "--delivered", "0s", "--dry-run"}, {"export"}, {"migrate", "--dry-run"},
	} {
		t.Run(fmt.Sprint(command), func(t *testing.T) {
			if r := runCommand(t, "", append(append([]string{}, command...), "--db", path)...); r.code != 0 || r.stderr != "" {
				t.Errorf("exit code %d, %q", r.code, r.stderr)
			}
			if after := files(t, dir); !maps.Equal(before, after) {
				t.Error("files changed")
			}
		})
	}
}

func TestWrongCommandLinesAreUsageErrors(t *testing.T) {
	commands := append([][]string{{"run"}, {"version"}, {"completion", "bash"}, {"man", t.TempDir()}}, databaseCommands...)
	for _, command := range commands {
		for _, extra := range [][]string{{"--nonsense"}, {"--json=perhaps"}, {"-z"}} {
			t.Run(fmt.Sprint(command, extra), func(t *testing.T) {
				args := append(append([]string{}, command...), extra...)
				runCommand(t, "", args...).oneError(t, exitUsage, false)
				runCommand(t, "", append([]string{"--json"}, args...)...).oneError(t, exitUsage, true)
			})
		}
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	for _, command := range databaseCommands {
		if r := runCommand(t, "", command[0], "--help"); r.code != 0 || !strings.Contains(r.stdout, "Usage:") || r.stderr != "" {
			t.Errorf("%s: exit code %d, %q", command[0], r.code, r.stderr)
		}
	}
}
