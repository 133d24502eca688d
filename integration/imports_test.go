//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/outbox-relay/relay"

// pkg is what "go list -json" tells of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // direct
	Deps       []string // all
}

// A producer imports outbox, so what outbox imports, every application gets.
// The directions keep the broker's client, the logger and the metrics out of it.
func TestImportsPointOneWay(t *testing.T) {
	packages := list(t, "./...")
	broker := []string{"github.com/nats-io/"}
	rules := []struct {
		name, pkg string
		sub       bool     // packages below it too
		direct    []string // prefixes it must not import itself
		anyhow    []string // prefixes it must not reach by any way
		only      []string // the only imports, where set
	}{
		{
			name: "outbox knows no broker, logger or metrics", pkg: "outbox", sub: true,
			anyhow: append(broker, "github.com/rs/zerolog", "github.com/prometheus/",
				module+"/relay", module+"/cmd", module+"/integration"),
		},
		{
			name: "relay leaves the broker to its adapter", pkg: "relay",
			anyhow: append(broker, module+"/relay/jetstream", module+"/cmd", module+"/integration"),
		},
		{
			name: "the adapter does not reach back into the command", pkg: "relay/jetstream",
			anyhow: []string{module + "/cmd", module + "/integration", "github.com/nats-io/nats-server"},
		},
		{name: "migrations imports only embed", pkg: "migrations", only: []string{"embed"}},
		{
			name: "the command takes no test code along", pkg: "cmd/relay", sub: true,
			anyhow: []string{module + "/integration", "github.com/nats-io/nats-server", "testing"},
		},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			found := false
			for _, p := range packages {
				path := module + "/" + r.pkg
				if p.ImportPath != path && !(r.sub && strings.HasPrefix(p.ImportPath, path+"/")) {
					continue
				}
				found = true
				if strings.HasSuffix(p.ImportPath, "test") { // test helpers, imported by tests only
					continue
				}
				report(t, p.ImportPath, p.Deps, r.anyhow)
				for _, i := range p.Imports {
					if r.only != nil && !slices.Contains(r.only, i) {
						t.Errorf("%s imports %s", p.ImportPath, i)
					}
				}
			}
			if !found {
				t.Errorf("no package %s", r.pkg)
			}
		})
	}
}

func report(t *testing.T, importer string, imports, forbidden []string) {
	t.Helper()
	for _, i := range imports {
		for _, f := range forbidden {
			if i == f || strings.HasPrefix(i, f+"/") || strings.HasSuffix(f, "/") && strings.HasPrefix(i, f) {
				t.Errorf("%s reaches %s", importer, i)
			}
		}
	}
}

// The tables belong to outbox: a statement elsewhere would escape its rules.
func TestOnlyOutboxNamesItsTables(t *testing.T) {
	allowed := []string{"outbox", "migrations", "integration"}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		top := strings.Split(filepath.ToSlash(path), "/")
		if d.IsDir() && len(top) == 2 && (slices.Contains(allowed, top[1]) || strings.HasPrefix(top[1], ".")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "dovecote_") {
			t.Errorf("%s names a table of the outbox", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// list runs "go list -deps" for pattern, from the module's root.
func list(t *testing.T, pattern string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", pattern)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
