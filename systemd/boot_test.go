//go:build linux

package systemd_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bootEnv asks for the test that boots systemd; see TestUnitInABootedSystem.
const bootEnv = "RELAY_BOOT_TEST"

// The unit runs the real relay in its real sandbox: systemd is booted in
// namespaces of its own, on a throw-away copy of the file system, and a script in
// there tries what an operator relies on.
func TestUnitInABootedSystem(t *testing.T) {
	switch {
	case os.Getenv(bootEnv) == "":
		t.Skipf("%s is not set: systemd is not booted", bootEnv)
	case os.Getuid() != 0:
		t.Skip("not root: systemd can not be booted")
	}
	for _, need := range []string{"/lib/systemd/systemd", "/usr/bin/unshare", "/usr/bin/nsenter"} {
		if _, err := os.Stat(need); err != nil {
			t.Skipf("%s is not installed here: systemd can not be booted", need)
		}
	}
	results := t.TempDir()
	facts := boot(t, results)
	if len(facts) < 20 || facts[len(facts)-1] != "done" {
		for _, log := range []string{"log", "relay.log"} {
			b, _ := os.ReadFile(filepath.Join(results, log))
			t.Logf("%s:\n%s", log, b)
		}
		t.Errorf("the script did not come to its end")
	}
	for _, line := range facts {
		if fact, failed := strings.CutPrefix(line, "FAIL "); failed {
			t.Errorf("not so: %s", fact)
		} else {
			t.Log(line)
		}
	}
}

// boot runs the probe in a booted system and returns the facts that it wrote.
func boot(t *testing.T, results string) []string {
	t.Helper()
	relay := filepath.Join(t.TempDir(), "relay")
	build := exec.Command("go", "build", "-o", relay, "../cmd/relay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	units, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	var console bytes.Buffer
	cmd := exec.Command("unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child",
		filepath.Join(units, "testdata", "boot.sh"), results, relay, units)
	cmd.Stdout, cmd.Stderr = &console, &console
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: cgroup(t), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()         // the namespaces and all in them are gone
	defer cmd.Process.Kill() // --kill-child ends the system with it
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s", console.String())
		}
	})
	return await(t, filepath.Join(results, "facts"))
}

// cgroup makes a control group for the booted system, which takes its own group
// for the root of all.
func cgroup(t *testing.T) int {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "relay-boot-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { removeGroups(t, dir) })
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return int(f.Fd())
	}
	t.Skip("no writable cgroup2 hierarchy: systemd can not be booted")
	return -1
}

// removeGroups removes the groups that the system left, the deepest first. The
// kernel lets go of dead processes a little later.
func removeGroups(t *testing.T, dir string) {
	t.Helper()
	err := errors.New("not tried")
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		err = exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").Run()
		if _, gone := os.Stat(dir); errors.Is(gone, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		t.Errorf("control group %s: %v", dir, err)
	}
}

// await returns the lines of the file once its last one is "done", or what there
// is after two minutes.
func await(t *testing.T, path string) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		if lines[len(lines)-1] == "done" || time.Now().After(deadline) {
			return lines
		}
	}
}
