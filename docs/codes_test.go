package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fromElsewhere are codes that the relay package does not declare: the outbox
// reports the first, and the second stands for a person's own reason.
var fromElsewhere = []string{"counter_overflow", "operator"}

// codes are the string constants of type Code in the relay package.
func codes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../relay/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Clone(fromElsewhere)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Code" {
			for _, v := range spec.Values {
				if code, err := strconv.Unquote(v.(*ast.BasicLit).Value); err == nil {
					all = append(all, code)
				}
			}
		}
		return true
	})
	if len(all) < 20 {
		t.Fatalf("only %d codes found in relay/codes.go", len(all))
	}
	return all
}

var codeHeading = regexp.MustCompile(`(?m)^#### ([a-z_]+)$`)

func TestEveryCodeHasARunbookEntry(t *testing.T) {
	runbook := read(t, "runbook.md")
	known := codes(t)
	for _, code := range known {
		_, entry, found := strings.Cut(runbook, "\n#### "+code+"\n")
		if !found {
			t.Errorf("runbook.md has no entry for %s", code)
			continue
		}
		entry, _, _ = strings.Cut(entry, "\n#")
		if !strings.Contains(entry, "**Means.**") || !strings.Contains(entry, "**Do.**") {
			t.Errorf("runbook.md: %s: says not what it means and what to do", code)
		}
	}
	for _, m := range codeHeading.FindAllStringSubmatch(runbook, -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("runbook.md has an entry for %s, which is no code", m[1])
		}
	}
}
