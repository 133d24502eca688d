// Package systemd_test checks the units with systemd's own tools, and the
// file modes they ask for with two real users.
package systemd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxExposure is the worst score that the units may get from
// "systemd-analyze security"; 0 is best, 10 worst.
const maxExposure = 2.0

var units = []string{"relay.service", "relay@.service"}

// analyze runs systemd-analyze, or skips the test where there is none.
func analyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed here: the units are not checked")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	return string(out), err
}

func TestVerifyIsClean(t *testing.T) {
	for _, unit := range units {
		t.Run(unit, func(t *testing.T) {
			out, err := analyze(t, "verify", "--man=no", installed(t, unit))
			if err != nil || strings.TrimSpace(out) != "" {
				t.Errorf("systemd-analyze verify %s: %v\n%s", unit, err, out)
			}
		})
	}
}

// installed returns a copy of unit whose ExecStart names a program that exists
// on this machine, since verify insists on one.
func installed(t *testing.T, unit string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.ReplaceAll(read(t, unit), []byte("ExecStart=/usr/bin/relay "), []byte("ExecStart="+self+" "))
	if !bytes.Contains(text, []byte(self)) {
		t.Fatalf("%s: no ExecStart=/usr/bin/relay", unit)
	}
	path := filepath.Join(t.TempDir(), unit)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

var exposureLine = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

func TestExposureIsLow(t *testing.T) {
	for _, unit := range units {
		t.Run(unit, func(t *testing.T) {
			out, err := analyze(t, "security", "--offline=true", "--no-pager", unit)
			if err != nil {
				t.Fatalf("systemd-analyze security: %v\n%s", err, out)
			}
			m := exposureLine.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("no overall score in:\n%s", out)
			}
			score, err := strconv.ParseFloat(m[1], 64)
			if err != nil || score > maxExposure {
				t.Errorf("exposure %s, want at most %v", m[1], maxExposure)
			}
			t.Logf("%s: exposure %s", unit, m[1])
		})
	}
}

// The template is the plain unit with the instance's name in its paths, and
// nothing else.
func TestTemplateFollowsUnit(t *testing.T) {
	want := strings.NewReplacer(
		"JetStream\n", "JetStream (%i)\n",
		"/etc/relay/relay.toml", "/etc/relay/%i.toml",
		"StateDirectory=relay\n", "StateDirectory=relay/%i\n",
		":relay.", ":relay.%i.",
	).Replace(string(read(t, "relay.service")))
	if got := string(read(t, "relay@.service")); got != want {
		t.Errorf("relay@.service differs from relay.service by more than the instance's name; want:\n%s", want)
	}
}

var environment = regexp.MustCompile(`(?m)^Environment=(.*)$`)

// Status 2 is a wrong configuration, after which systemd does not start the relay
// again. It is also how a Go program ends when it panics or gets the watchdog's
// SIGABRT, unless its environment makes it end by a signal.
func TestCrashIsNotTakenForAWrongConfiguration(t *testing.T) {
	for _, unit := range units {
		text := string(read(t, unit))
		if !strings.Contains(text, "\nRestartPreventExitStatus=2\n") {
			t.Errorf("%s: a wrong configuration would be started again and again", unit)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Env = []string{panicEnv + "=1"}
		for _, m := range environment.FindAllStringSubmatch(text, -1) {
			cmd.Env = append(cmd.Env, m[1])
		}
		cmd.Dir = t.TempDir() // for the core
		if err := cmd.Run(); err == nil || cmd.ProcessState.Exited() {
			t.Errorf("%s: a panic ends with %v, want a signal", unit, err)
		}
	}
}

func TestSysusersAndTmpfiles(t *testing.T) {
	for _, tool := range []string{"systemd-sysusers", "systemd-tmpfiles"} {
		if _, err := exec.LookPath(tool); err != nil || os.Getuid() != 0 {
			t.Skipf("%s as root is not possible here: user and directories are not checked", tool)
		}
	}
	root := t.TempDir()
	stage(t, root)
	run(t, "systemd-sysusers", "--root="+root, "relay.conf")
	run(t, "systemd-tmpfiles", "--create", "--root="+root, "relay.conf")
	passwd := string(read(t, filepath.Join(root, "etc/passwd")))
	if !regexp.MustCompile(`(?m)^relay:[^:]*:\d+:\d+:Outbox relay:/var/lib/relay:\S*nologin$`).MatchString(passwd) {
		t.Errorf("no user relay without a login shell in:\n%s", passwd)
	}
	wantMode(t, filepath.Join(root, "var/lib/relay"), os.ModeDir|os.ModeSetgid|0o770)
	wantMode(t, filepath.Join(root, "etc/relay"), os.ModeDir|0o750)
	wantMode(t, filepath.Join(root, "etc/credstore"), os.ModeDir|0o700)
}

// stage lays the two configurations out below root as make install does.
func stage(t *testing.T, root string) {
	t.Helper()
	for _, f := range []string{"sysusers.d/relay.conf", "tmpfiles.d/relay.conf"} {
		path := filepath.Join(root, "usr/lib", f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, read(t, f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Error(err)
		return
	}
	if fi.Mode() != want {
		t.Errorf("%s has mode %v, want %v", path, fi.Mode(), want)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
