package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packageDirs are the directories of the packages that faults.md names.
var packageDirs = map[string]string{
	"integration": "../integration",
	"outbox":      "../outbox",
	"relay":       "../relay",
	"jetstream":   "../relay/jetstream",
	"cmd":         "../cmd/relay",
	"systemd":     "../systemd",
}

// knownFaults is how many faults there are reports of. The page may have more,
// never fewer.
const knownFaults = 35

var (
	faultRow  = regexp.MustCompile(`(?m)^\| (\d+) \|(.*)\|$`)
	namedTest = regexp.MustCompile("`([a-z]+)\\.(Test\\w+)`")
)

// Every fault has its row, with all columns, and tests that exist.
func TestFaultsHaveTests(t *testing.T) {
	page := read(t, "faults.md")
	rows := faultRow.FindAllStringSubmatch(page, -1)
	if len(rows) < knownFaults {
		t.Errorf("%d rows, want at least %d", len(rows), knownFaults)
	}
	for i, m := range rows {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("row %s stands where row %d should", m[1], i+1)
		}
		columns := strings.Split(m[2], " | ")
		if len(columns) != 4 {
			t.Errorf("row %s: %d columns beside its number, want 4", m[1], len(columns))
			continue
		}
		for _, column := range columns {
			if strings.TrimSpace(column) == "" {
				t.Errorf("row %s has an empty column", m[1])
			}
		}
		if !namedTest.MatchString(columns[3]) {
			t.Errorf("row %s names no test", m[1])
		}
	}
	exists := testsOf(t)
	for _, m := range namedTest.FindAllStringSubmatch(page, -1) {
		if !exists[m[1]+"."+m[2]] {
			t.Errorf("faults.md names %s.%s, which does not exist", m[1], m[2])
		}
	}
}

// notFaults are the files of integration tests of what goes right, and of the
// source itself.
var notFaults = []string{
	"main_test.go", "flow_test.go", "foreign_test.go", "demo_test.go", "readme_test.go", "imports_test.go",
}

// No integration test of a fault is missing from the page.
func TestEveryFaultTestHasARow(t *testing.T) {
	page := read(t, "faults.md")
	files, err := filepath.Glob("../integration/*_test.go")
	if err != nil || len(files) <= len(notFaults) {
		t.Fatalf("no tests in integration: %v", err)
	}
	for _, path := range files {
		if slices.Contains(notFaults, filepath.Base(path)) {
			continue
		}
		for _, test := range testsIn(t, path) {
			if !strings.Contains(page, "`integration."+test+"`") {
				t.Errorf("faults.md does not name integration.%s of %s", test, path)
			}
		}
	}
}

// testsOf has every top-level test of the packages, as package.Test.
func testsOf(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for name, dir := range packageDirs {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %s: %v", dir, err)
		}
		for _, path := range files {
			for _, test := range testsIn(t, path) {
				all[name+"."+test] = true
			}
		}
	}
	return all
}

// testsIn are the names of the top-level tests in a file.
func testsIn(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
			names = append(names, f.Name.Name)
		}
	}
	return names
}
