//go:build unix

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/natstest"
)

// smallDisk mounts a file system of the given size, where the system allows it.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no small disk here: mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill takes all space in dir and returns the function that gives it back.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A full disk is ridden out: nothing is published that could not be claimed, what
// was published is recorded when there is space again, even when its lease has
// ended and the duplicate window is over, and the process stays the same.
func TestFullDiskIsRiddenOut(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	dir := smallDisk(t, "8m")
	s := &stage{
		t: t, nats: natstest.Start(t, natstest.Options{}), db: harness.NewDatabaseIn(t, dir), faults: &harness.Journal{},
	}
	s.stream(allEvents(time.Second))
	c := s.config()
	c.Metrics = harness.FreeAddress(t)
	c.InFlight, c.Batch = 100, 100
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	pid := relay.PID()
	// A reader holds its snapshot, so that the log cannot be used over again and has
	// to grow.
	report, err := harness.OpenDatabase(t, s.db.Path).SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer report.Rollback()
	var rows int
	if err := report.QueryRow("SELECT count(*) FROM dovecote_events").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	s.nats.Freeze()
	var events []event
	for i := range 400 {
		events = append(events, event{id: fmt.Sprint("event ", i), data: filler(100)})
	}
	all := s.insert(events...)
	s.waitClaimed(100)
	free := fill(t, dir)
	s.nats.Thaw()
	harness.Eventually(t, harness.Patience, "readiness tells of the full disk", func() (bool, string) {
		code, body := harness.Get(c.Metrics, "/readyz")
		return code == 503 && strings.Contains(body, "database: full"), fmt.Sprint(code, body)
	})
	stored := len(s.stored("EVENTS"))
	harness.Steadily(t, 6*time.Second, "the relay runs, and publishes nothing", func() (bool, string) {
		now := len(s.stored("EVENTS"))
		return relay.Running() && now == stored, fmt.Sprintf("%d stored, then %d", stored, now)
	})
	if health, body := harness.Get(c.Metrics, "/healthz"); health != 200 {
		t.Errorf("/healthz: %d %s: a full disk is no hang", health, body)
	}
	free()
	s.db.WaitDelivered(len(all), harness.Patience)
	if relay.PID() != pid {
		t.Error("another process")
	}
	relay.Stop()
	lines := logLines(t, relay.Log())
	// Finding a claim lost needs no space, so that the trouble can seem over once.
	lost, back := saying(lines, "database cannot be written"), saying(lines, "database can be written again")
	if lost < 1 || lost > 2 || lost != back || len(lines) > 20 {
		t.Errorf("log:\n%s", relay.Log())
	}
	s.check(len(all), harness.Expect{Also: all})
}

// A file that was overwritten is no outage: the relay ends and says so.
func TestOverwrittenFileEndsTheRelay(t *testing.T) {
	harness.Heavy(t)
	for name, idle := range map[string]bool{"idle": true, "with work": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			relay := s.startRelay("relay")
			n := s.waitProduced(s.produce(1, 50, 0))
			s.db.WaitDelivered(n, harness.Patience)
			s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)") // else the log has it all, and heals it
			if !idle {
				s.nats.Freeze()
				s.waitProduced(s.produce(1, 50, 0))
				s.waitClaimed(50)
			}
			s.overwrite()
			if !idle {
				s.nats.Thaw()
			}
			if code := relay.WaitExit(15 * time.Second); code != 1 {
				t.Errorf("exit %d, want 1", code)
			}
			if log := relay.Log(); !strings.Contains(log, s.db.Path+": the file is no SQLite database") {
				t.Errorf("the log does not name the file:\n%s", log)
			}
			s.db.SQL.Close()
			s.overwrite() // what the end of the last connection wrote is of no interest
			for _, suffix := range []string{"-wal", "-shm"} {
				if err := os.Remove(s.db.Path + suffix); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			relay.Start()
			if code := relay.WaitExit(harness.Patience); code != 1 {
				t.Errorf("exit %d of the next start, want 1", code)
			}
			wantRefusal(t, 1, []string{s.db.Path}, "status", "--db", s.db.Path)
		})
	}
}

// overwrite puts text where the database was, in the same file.
func (s *stage) overwrite() {
	s.t.Helper()
	f, err := os.OpenFile(s.db.Path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteString(strings.Repeat("this is no database\n", 5000)); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// A file that is taken away ends the relay as one that is replaced does.
func TestRemovedFileEndsTheRelay(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	relay := s.startRelay("relay")
	n := s.waitProduced(s.produce(1, 20, 0))
	s.db.WaitDelivered(n, harness.Patience)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(s.db.Path + suffix); err != nil {
			t.Fatal(err)
		}
	}
	if code := relay.WaitExit(10 * time.Second); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if !strings.Contains(relay.Log(), s.db.Path) {
		t.Error("the log does not name the file")
	}
}

const nobody = 65534

// SQLite needs the directory: it is named at once, not "readonly database" later.
func TestReadOnlyDirectoryIsNamedAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: another user cannot be had")
	}
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "relay-directory-") // reachable for others, as t.TempDir is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "relay")
	copyFile(t, harness.Binary(t), binary, 0o755)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(data, "shop.db")
	harness.MustRun(t, "migrate", "--create", "--db", path)
	config := filepath.Join(dir, "relay.toml")
	text := harness.Config{DB: path, URLs: []string{"nats://127.0.0.1:1"}}.TOML()
	for _, c := range []struct {
		name      string
		file, dir os.FileMode
		want      []string
	}{
		{"only the file can be written", 0o666, 0o755, []string{data + ":", "directory"}},
		{"only the directory can be written", 0o644, 0o777, []string{path + ":", "written"}},
		{"nothing can be read", 0o600, 0o755, []string{path + ":"}},
		{"the directory cannot be searched", 0o666, 0o700, []string{path + ":", "search"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, config, text)
			for path, mode := range map[string]os.FileMode{config: 0o644, path: c.file, data: c.dir} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), binary, "run", "--config", config)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit 1", err)
			}
			for _, part := range c.want {
				if !strings.Contains(string(out), part) {
					t.Errorf("%q does not have %q", out, part)
				}
			}
			if strings.Count(string(out), "\n") != 1 {
				t.Errorf("not one line: %q", out)
			}
		})
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, mode); err != nil {
		t.Fatal(err)
	}
}
