//go:build unix

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/integration/workload"
)

// block is the first fenced block of README.md in the language after the text
// before, which may be empty.
func block(t *testing.T, before, language string) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), before)
	m := regexp.MustCompile("(?s)\n```" + language + "\n(.*?)```\n").FindStringSubmatch(rest)
	if !found || m == nil {
		t.Fatalf("README.md has no block %q after %q", language, before)
	}
	return m[1]
}

func TestReadmeShowsTheProgramThatRuns(t *testing.T) {
	source, err := os.ReadFile("readme/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(source), "\npackage main\n")
	if block(t, "", "go") != "package main\n"+program {
		t.Error("the Go example of README.md and integration/readme/main.go differ")
	}
}

func TestPagesLinkToFilesThatExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	for _, page := range []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"} {
		text, err := os.ReadFile("../" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat("../" + m[1]); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

func TestArchitectureNamesEveryDependency(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		if name := strings.TrimPrefix(m[1], "github.com/"); !strings.Contains(string(text), name) {
			t.Errorf("ARCHITECTURE.md does not say what %s is for", name)
		}
	}
}

func TestReadmeNamesTheModulesOfOutbox(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./outbox")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.DeleteFunc(slices.Compact(modules), func(m string) bool { return m == module })
	if got := strings.Fields(block(t, "<!-- modules of outbox -->", "")); !slices.Equal(got, modules) {
		t.Errorf("README.md names %q, outbox needs %q", got, modules)
	}
}

// Someone who does what README.md says, with Go, with SQL through Go's driver
// and with SQL through Python's, sees every event arrive.
func TestReadmeFirstUse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "shop.db")
	broker := natstest.Start(t, natstest.Options{})
	_, err := broker.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"events.>"}})
	if err != nil {
		t.Fatal(err)
	}
	harness.MustRun(t, "migrate", "--create", "--db", path)
	if err := workload.Prepare(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	db := harness.OpenDatabase(t, path)
	db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
	config := strings.Replace(block(t, "### The relay", "toml"), `"shop.db"`, `"`+path+`"`, 1)
	config = strings.Replace(config, "nats://127.0.0.1:4222", broker.URL(), 1)
	relay := harness.StartRelayConfig(t, "relay", config, nil)

	runGoExample(t, dir)
	statements := block(t, "### In SQL", "sql")
	db.Exec(statements)
	ids := []string{"o-1001", "o-1002"}
	if runPython(t, path, strings.ReplaceAll(statements, "o-1002", "o-1003")) {
		ids = append(ids, "o-1003")
	}

	db.WaitDelivered(len(ids), harness.Patience)
	harness.MustRun(t, "status", "--db", path)
	harness.MustRun(t, "show", "1", "--db", path)
	relay.Stop()
	if orders := db.Int("SELECT count(*) FROM orders"); orders != len(ids) {
		t.Errorf("%d orders, want %d", orders, len(ids))
	}
	var expect harness.Expect
	for _, id := range ids {
		expect.Also = append(expect.Also, harness.Identity{Tenant: "acme", Source: "/shop", ID: id})
	}
	if sum := harness.Check(t, db, broker.URL(), expect); sum.Stored != len(ids) {
		t.Errorf("%d events stored, want %d", sum.Stored, len(ids))
	}
}

func runGoExample(t *testing.T, dir string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "readme")
	if out, err := exec.Command("go", "build", "-o", binary, "./readme").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the Go example: %v\n%s", err, out)
	}
}

const pythonProducer = `
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("PRAGMA busy_timeout = 5000")
c.execute("PRAGMA foreign_keys = ON")
c.executescript(sys.stdin.read())
`

// runPython runs statements through Python's own SQLite, where there is one.
func runPython(t *testing.T, path, statements string) bool {
	t.Helper()
	if err := exec.Command("python3", "-c", "import sqlite3").Run(); err != nil {
		t.Log("no python3 with sqlite3 here: that part is left out")
		return false
	}
	cmd := exec.Command("python3", "-c", pythonProducer, path)
	cmd.Stdin = strings.NewReader(statements)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("python3: %v\n%s", err, out)
	}
	return true
}
