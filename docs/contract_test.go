package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	testName     = regexp.MustCompile("`((?:Test|Fuzz|Example)\\w*)`")
)

// testNames are the tests of the whole repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestEveryRuleNamesTestsThatExist(t *testing.T) {
	known, rules := testNames(t), 0
	for _, line := range strings.Split(read(t, "contract.md"), "\n") {
		if !strings.HasPrefix(line, "| ") || line == "| rule | tests |" {
			continue
		}
		rules++
		named := testName.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range named {
			if !known[m[1]] {
				t.Errorf("%s does not exist: %s", m[1], line)
			}
		}
	}
	if rules < 80 {
		t.Errorf("only %d rules found in contract.md", rules)
	}
}
