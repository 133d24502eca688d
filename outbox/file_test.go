package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func TestAReplacedFileIsNoticed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		replace func(t *testing.T, path string)
	}{
		{"removed", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}},
		{"replaced by another outbox", func(t *testing.T, path string) {
			if err := os.Rename(outboxtest.NewFile(t), path); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := outbox.Open(t.Context(), outboxtest.NewFile(t), outbox.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.SameFile(); err != nil {
				t.Fatal(err)
			}
			tc.replace(t, s.Path())
			if err := s.SameFile(); !errors.Is(err, outbox.ErrFileReplaced) {
				t.Error(err)
			}
			// A connection made from now on would be to the wrong file.
			if _, err := s.Commits(t.Context()); !errors.Is(err, outbox.ErrFileReplaced) {
				t.Error(err)
			}
		})
	}
}

func TestReadOnlyRefusesEveryWrite(t *testing.T) {
	path := outboxtest.NewFile(t)
	outboxtest.Enqueue(t, outboxtest.Producer(t, path), events("acme", 3)...)
	s, err := outbox.Open(t.Context(), path, outbox.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.AllTenants()
	if _, err := h.Claim(t.Context(), "w", time.Minute, 1); !errors.Is(err, outbox.ErrReadOnly) {
		t.Error(err)
	}
	if _, err := h.Settle(t.Context(), []outbox.Settlement{{Row: 1, Action: outbox.Ack}}); !errors.Is(err, outbox.ErrReadOnly) {
		t.Error(err)
	}
	if due, err := h.Due(t.Context()); err != nil || !due.Ready {
		t.Error(due, err)
	}
}

// A user without permissions is another process, since root has all of them.
const (
	childDir  = "OUTBOX_TEST_DIR"
	childTask = "OUTBOX_TEST_TASK"
)

// asNobody runs this test once more in a process of another user, with dir.
func asNobody(t *testing.T, dir, task string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become somebody else")
	}
	for d := dir; d != filepath.Dir(d) && d != os.TempDir(); d = filepath.Dir(d) {
		if info, err := os.Stat(d); err == nil && info.Mode()&0o1 == 0 {
			os.Chmod(d, info.Mode()|0o111)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "self")
	os.Chmod(filepath.Dir(copied), 0o755)
	os.Chmod(filepath.Dir(filepath.Dir(copied)), 0o755)
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childTask+"="+task)
	cmd.Dir = "/"
	becomeNobody(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestWithoutPermissions(t *testing.T) {
	if task := os.Getenv(childTask); task != "" {
		withoutPermissions(t, os.Getenv(childDir), task)
		return
	}
	for _, tc := range []struct {
		task      string
		file, dir os.FileMode
		busy      bool // somebody has the file open, with rows in the log
	}{
		{"directory", 0o666, 0o755, false},
		{"file", 0o644, 0o777, false},
		{"read", 0o644, 0o777, false},
		{"read", 0o644, 0o755, false},
		{"read", 0o644, 0o777, true},
		{"read", 0o666, 0o755, true},
		{"unreadable", 0o600, 0o777, false},
	} {
		t.Run(fmt.Sprintf("%s file %o directory %o busy %v", tc.task, tc.file, tc.dir, tc.busy), func(t *testing.T) {
			path := outboxtest.NewFile(t)
			dir := filepath.Dir(path)
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			outboxtest.Enqueue(t, db, events("acme", 3)...)
			if !tc.busy {
				db.Close()
			}
			if err := os.Chmod(path, tc.file); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, tc.dir); err != nil {
				t.Fatal(err)
			}
			before := names(t, dir)
			asNobody(t, dir, tc.task)
			if after := names(t, dir); !slices.Equal(before, after) {
				t.Errorf("files before %v, after %v", before, after)
			}
		})
	}
}

func names(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// withoutPermissions is what the other user tries.
func withoutPermissions(t *testing.T, dir, task string) {
	path := filepath.Join(dir, "outbox.db")
	s, err := outbox.Open(context.Background(), path, outbox.Options{ReadOnly: task == "read"})
	if err == nil {
		defer s.Close()
	}
	var fe *outbox.FileError
	switch task {
	case "directory":
		if !errors.As(err, &fe) || fe.Path != dir || !strings.Contains(err.Error(), "directory") {
			t.Errorf("the directory is not named: %v", err)
		}
	case "file":
		if !errors.As(err, &fe) || fe.Path != path {
			t.Errorf("the file is not named: %v", err)
		}
	case "unreadable":
		_, readOnly := outbox.Open(t.Context(), path, outbox.Options{ReadOnly: true})
		for _, err := range []error{err, readOnly} {
			if !errors.As(err, &fe) || fe.Path != path || !strings.Contains(err.Error(), "let this user read the file") {
				t.Errorf("file and remedy are not named: %v", err)
			}
		}
	case "read":
		if err != nil {
			t.Fatal(err)
		}
		if due, err := s.AllTenants().Due(t.Context()); err != nil || !due.Ready {
			t.Error(due, err)
		}
	}
}

func TestReadOnlyLeavesNoSideFiles(t *testing.T) {
	path := outboxtest.NewFile(t)
	for _, o := range []outbox.Options{{ReadOnly: true}, {}} {
		s, err := outbox.Open(t.Context(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AllTenants().Due(t.Context()); err != nil {
			t.Error(err)
		}
		c, err := s.Commits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if got := names(t, filepath.Dir(path)); len(got) != 1 {
			t.Errorf("%v", got)
		}
	}
}

// A file in rollback-journal mode becomes a WAL file when a writer opens it, and
// several may do so at once, beside an app that commits.
func TestOpenTurnsToWriteAheadLogging(t *testing.T) {
	path := outboxtest.NewFile(t)
	app, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_txlock=immediate&_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	app.SetMaxOpenConns(1)
	must(t, app, `PRAGMA journal_mode = DELETE`)
	mode := func() (m string) {
		if err := app.QueryRow(`PRAGMA journal_mode`).Scan(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if s, err := outbox.Open(t.Context(), path, outbox.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	} else if s.Close(); mode() != "delete" {
		t.Fatalf("a read-only store changed the journal mode to %s", mode())
	}
	stop := make(chan struct{})
	appDone := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				appDone <- nil
				return
			default:
			}
			tx, err := app.Begin()
			if err == nil {
				_, err = outbox.Enqueue(context.Background(), tx, event("acme", fmt.Sprint(i)))
			}
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				appDone <- err
				return
			}
		}
	}()
	opened := make(chan error)
	for range 4 {
		go func() {
			s, err := outbox.Open(context.Background(), path, outbox.Options{})
			if err == nil {
				_, err = s.AllTenants().Claim(context.Background(), "w", time.Minute, 1)
				err = errors.Join(err, s.Close())
			}
			opened <- err
		}()
	}
	for range 4 {
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-appDone; err != nil {
		t.Errorf("the app: %v", err)
	}
	if mode() != "wal" {
		t.Error(mode())
	}
}

func TestOpenWaitsForALockedFile(t *testing.T) {
	path := outboxtest.NewFile(t)
	app, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	app.SetMaxOpenConns(1)
	must(t, app, `PRAGMA journal_mode = DELETE`)
	must(t, app, `BEGIN EXCLUSIVE`)
	o := outbox.Options{BusyTimeout: 50 * time.Millisecond, BusyRetries: -1}
	if _, err := outbox.Open(t.Context(), path, o); !errors.Is(err, outbox.ErrBusyExhausted) {
		t.Error(err)
	}
	must(t, app, `ROLLBACK`)
	s, err := outbox.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
