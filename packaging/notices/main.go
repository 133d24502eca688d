// Command notices prints the licences of everything that is linked into a
// program, as its distribution in binary form requires: Go's own, and those of
// each module that a package comes from. Run it in the program's module.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: notices PACKAGE > NOTICES")
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := notices(os.Stdout, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// notices writes the licences of pkg and its dependencies to w.
func notices(w io.Writer, pkg string) error {
	mods, err := modules(pkg)
	if err != nil {
		return err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	mods = append([]module{{Path: "Go standard library and runtime", Dir: strings.TrimSpace(string(goroot))}}, mods...)
	for _, m := range mods {
		if err := m.print(w); err != nil {
			return err
		}
	}
	return nil
}

// module is what "go list -json" says of one.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// modules lists the modules that the packages linked into pkg come from, in
// order of their paths, without the main one.
func modules(pkg string) ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var mods []module
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			mods = append(mods, *p.Module)
		}
	}
	slices.SortFunc(mods, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(mods), nil
}

var licenceName = regexp.MustCompile(`(?i)^(.*-)?(licen[cs]e|copying|notice|patents)(\..*|-.*)?$`)

// print writes the module's licence files, or an error when it has none.
func (m module) print(w io.Writer) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenceName.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		title := strings.TrimSpace(m.Path + " " + m.Version)
		fmt.Fprintf(w, "%s\n%s: %s\n\n%s\n\n", strings.Repeat("=", 72), title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s %s has no licence file in %s", m.Path, m.Version, m.Dir)
	}
	return nil
}
