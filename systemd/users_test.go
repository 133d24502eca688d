package systemd_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "modernc.org/sqlite"
)

// Two users as an installation has them: the relay, and an app whose own group
// is another one and which is a member of the relay's.
const (
	relayUID, relayGID = 64101, 64101
	appUID, appGID     = 64102, 64102
)

// These make the test binary something else: a small writer of the database that
// the first names (see writer), or, with the second, a program that panics.
const (
	writerEnv = "RELAY_TEST_WRITER"
	panicEnv  = "RELAY_TEST_PANIC"
)

func TestMain(m *testing.M) {
	if os.Getenv(panicEnv) != "" {
		panic("as asked")
	}
	if path := os.Getenv(writerEnv); path != "" {
		if err := writer(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writer commits a row to the database at path in WAL mode, says so, and keeps
// the file open until its input ends.
func writer(path string) error {
	syscall.Umask(0o007) // as the units do
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=journal_mode(wal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("INSERT INTO t DEFAULT VALUES"); err != nil {
		return err
	}
	fmt.Println("written")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// as starts a writer as another user, waits for its answer, and leaves it
// running with the file open until the test ends.
func as(t *testing.T, uid, gid uint32, groups []uint32, path string) (answer string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/fd/3")
	binary, err := os.Open(self) // the directory of the binary may be closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	cmd.ExtraFiles = []*os.File{binary}
	cmd.Env = []string{writerEnv + "=" + path}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	return strings.TrimSpace(line)
}

func asRelay(t *testing.T, path string) string { return as(t, relayUID, relayGID, nil, path) }
func asApp(t *testing.T, path string) string {
	return as(t, appUID, appGID, []uint32{relayGID}, path)
}

// The modes that tmpfiles.d and the operator's page ask for let either user
// come first; each lesser set of modes is one of the mistakes that the page
// warns of.
func TestAppAndRelayShareADatabase(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: two users can not be had")
	}
	const setgid = os.ModeSetgid
	for _, c := range []struct {
		name          string
		dir, file     os.FileMode
		first, second func(*testing.T, string) string
		refused       string // in the second's answer; "" means it works
	}{
		{"app first, then relay", setgid | 0o770, 0o660, asApp, asRelay, ""},
		{"relay first, then app", setgid | 0o770, 0o660, asRelay, asApp, ""},
		{"directory does not hand its group on", 0o770, 0o660, asApp, asRelay, "unable to open database file"},
		{"file is not writable for the group", setgid | 0o770, 0o640, asRelay, asApp, "readonly"},
		{"directory is not writable for the group", setgid | 0o750, 0o660, nil, asApp, "readonly"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := newDatabase(t, c.dir, c.file)
			if c.first != nil {
				if got := c.first(t, path); got != "written" {
					t.Fatalf("first: %s", got)
				}
			}
			got := c.second(t, path)
			if c.refused != "" {
				if !strings.Contains(got, c.refused) {
					t.Errorf("second: %q, want an error with %q", got, c.refused)
				}
				return
			}
			if got != "written" {
				t.Errorf("second: %s", got)
			}
			sideFiles(t, path)
		})
	}
}

// newDatabase makes a database of user and group relay with one table.
func newDatabase(t *testing.T, dirMode, fileMode os.FileMode) string {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "relay-users-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "state")
	path := filepath.Join(dir, "outbox.db")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(base, 0o755))
	must(os.Mkdir(dir, 0o755))
	db, err := sql.Open("sqlite", path)
	must(err)
	_, err = db.Exec("PRAGMA journal_mode = wal; CREATE TABLE t (id INTEGER PRIMARY KEY)")
	must(err)
	must(db.Close())
	must(os.Chown(path, relayUID, relayGID))
	must(os.Chmod(path, fileMode))
	must(os.Chown(dir, relayUID, relayGID))
	must(os.Chmod(dir, dirMode))
	return path
}

// sideFiles checks that both side files belong to the shared group and are
// writable for it.
func sideFiles(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"-wal", "-shm"} {
		fi, err := os.Stat(path + suffix)
		if err != nil {
			t.Error(err)
			continue
		}
		if gid := fi.Sys().(*syscall.Stat_t).Gid; gid != relayGID || fi.Mode().Perm() != 0o660 {
			t.Errorf("%s: group %d, mode %v; want group %d, mode 0660", suffix, gid, fi.Mode(), relayGID)
		}
	}
}
