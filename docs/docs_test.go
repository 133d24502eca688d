// Package docs_test holds the operators' pages to what the program does: the
// commands, flags, keys, metrics, codes and links that they mention exist.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the Markdown files of the documentation, by path from this directory.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "../*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all[name] = read(t, name)
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")

// blocks are the code blocks of a language in a page.
func blocks(page, language string) []string {
	var found []string
	for _, m := range fence.FindAllStringSubmatch(page, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

var (
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the headings of a page as links name them.
func anchors(page string) []string {
	var slugs []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := link.ReplaceAllString(strings.ReplaceAll(m[1], "[", ""), "")
		slugs = append(slugs, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
	}
	return slugs
}

func TestLinksLeadSomewhere(t *testing.T) {
	for name, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target, text := name, page
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
				b, err := os.ReadFile(target)
				if info, statErr := os.Stat(target); statErr != nil {
					t.Errorf("%s: link to %s: %v", name, m[1], err)
					continue
				} else if info.IsDir() {
					continue
				}
				text = string(b)
			}
			if anchor != "" && !slices.Contains(anchors(text), anchor) {
				t.Errorf("%s: %s has no heading #%s", name, target, anchor)
			}
		}
	}
}
