package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	os.Exit(testscript.RunMain(m, map[string]func() int{"relay": mainCode}))
}

// TestScripts runs testdata/script. Beside testscript's own commands there are
//
//	exits CODE command…   run a command that must end with exactly this code
//	oneline               standard error is exactly one line that begins "relay: "
//	jsonlines [MEMBER]    each line of standard output is a JSON object, with MEMBER
//	worker, spoil, eventually, samemembers: see those functions
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":       exits,
			"oneline":     oneLineOnly,
			"jsonlines":   jsonLines,
			"worker":      worker,
			"spoil":       spoil,
			"eventually":  eventually,
			"samemembers": sameMembers,
		},
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func oneLineOnly(ts *testscript.TestScript, _ bool, _ []string) {
	text := ts.ReadFile("stderr")
	if !strings.HasPrefix(text, "relay: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		ts.Fatalf("standard error is not one line that begins \"relay: \": %q", text)
	}
}

func jsonLines(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.TrimSuffix(ts.ReadFile("stdout"), "\n")
	for _, line := range strings.Split(text, "\n") {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%q is no JSON object: %v", line, err)
		}
		for _, member := range args {
			if _, ok := object[member]; !ok {
				ts.Fatalf("%s has no member %q", line, member)
			}
		}
	}
}
