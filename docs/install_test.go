package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// install runs the script behind make install, and make uninstall, with the
// relay of this tree, below dest.
func install(t *testing.T, dest string, args ...string) {
	t.Helper()
	for _, need := range []string{"install", "gzip", "sed"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("%s is not installed here: the installation is not checked", need)
		}
	}
	cmd := exec.Command("packaging/install.sh", args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "DESTDIR="+dest, "PREFIX=/opt/relay", "BINARY="+relayBinary(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install.sh %v: %v\n%s", args, err, out)
	}
}

// filesBelow are the files below dir with their modes, by path.
func filesBelow(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	all := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		all[strings.TrimPrefix(path, dir)] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestInstallAndUninstall(t *testing.T) {
	dest := t.TempDir()
	install(t, dest)
	files := filesBelow(t, dest)
	for path, mode := range map[string]fs.FileMode{
		"/bin/relay":                                  0o755,
		"/lib/systemd/system/relay.service":           0o644,
		"/lib/systemd/system/relay@.service":          0o644,
		"/lib/sysusers.d/relay.conf":                  0o644,
		"/lib/tmpfiles.d/relay.conf":                  0o644,
		"/share/relay/config.example.toml":            0o644,
		"/share/man/man1/relay.1.gz":                  0o644,
		"/share/man/man1/relay-run.1.gz":              0o644,
		"/share/doc/relay/LICENSE":                    0o644,
		"/share/doc/relay/docs/operate.md":            0o644,
		"/share/doc/relay/docs/runbook.md":            0o644,
		"/share/zsh/site-functions/_relay":            0o644,
		"/share/bash-completion/completions/relay":    0o644,
		"/share/fish/vendor_completions.d/relay.fish": 0o644,
	} {
		if got, ok := files["/opt/relay"+path]; !ok || got != mode {
			t.Errorf("%s: installed %v with mode %v, want %v", path, ok, got, mode)
		}
	}
	unit := read(t, dest+"/opt/relay/lib/systemd/system/relay.service")
	if !strings.Contains(unit, "\nExecStart=/opt/relay/bin/relay run ") {
		t.Errorf("the unit does not start the relay of its prefix:\n%s", unit)
	}
	install(t, dest) // again, over itself
	install(t, dest, "--remove")
	for path := range filesBelow(t, dest) {
		t.Errorf("%s is left after the removal", path)
	}
}
