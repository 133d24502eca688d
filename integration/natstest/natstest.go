// Package natstest runs the real nats-server as a process, for tests that
// stop, freeze, kill and restart it.
//
// The binary is the module's tool dependency: "go tool -n nats-server" builds
// it into Go's build cache once and prints its path. Every server listens on
// loopback, on a port below the range from which the kernel picks source ports
// (a client that dials a stopped server's port from that range could otherwise
// connect to itself), and keeps its data in a directory of the test. It dies
// with the test process.
package natstest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// patience bounds every wait for the server to do something.
const patience = 30 * time.Second

// Options of a server. The zero value is a JetStream server without users.
type Options struct {
	Config      string // more configuration text, appended to the server's own
	NoJetStream bool   // leave the jetstream block out
	Name        string // server_name; "" is nats-PORT
	Port        int    // 0 picks a free one
	Store       string // JetStream store directory; "" is a new one of the test
}

// Server is one nats-server process and what is needed to start it again. Its
// methods fail the test on errors and are for the test's own goroutine.
type Server struct {
	tb   testing.TB
	o    Options
	dir  string
	log  string // log file of the current process
	runs int
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has been waited for
}

// Start runs a server and waits until it is ready. The test's cleanup ends it.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s := Prepare(tb, o)
	s.Start()
	return s
}

// Prepare chooses port and directories and starts nothing: for a broker that
// is down at first. [Server.Start] or [Server.Restart] brings it up.
func Prepare(tb testing.TB, o Options) *Server {
	tb.Helper()
	s := &Server{tb: tb, o: o, dir: tb.TempDir()}
	if s.o.Port == 0 {
		s.o.Port = FreePort(tb)
	}
	if s.o.Store == "" {
		s.o.Store = filepath.Join(s.dir, "store")
	}
	if s.o.Name == "" {
		s.o.Name = fmt.Sprintf("nats-%d", s.o.Port)
	}
	tb.Cleanup(func() {
		if tb.Failed() && s.log != "" {
			tb.Logf("log of %s:\n%s", s.o.Name, tail(s.Log(), 40))
		}
		s.Kill()
	})
	return s
}

// Start starts a server that is not running, on its port and store, and waits
// until it is ready.
func (s *Server) Start() {
	s.tb.Helper()
	s.Launch()
	s.WaitReady()
}

// Launch starts the process and does not wait: the members of a cluster become
// ready together.
func (s *Server) Launch() {
	s.tb.Helper()
	if s.Running() {
		s.tb.Fatalf("natstest: %s is already running", s.o.Name)
	}
	s.writeConfig()
	s.runs++
	s.log = filepath.Join(s.dir, fmt.Sprintf("server-%d.log", s.runs))
	out, err := os.Create(s.log)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(Binary(s.tb), "-c", s.ConfigFile())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("natstest: starting nats-server: %v", err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit status of a killed server says nothing
		close(done)
	}()
	s.cmd, s.done = cmd, done
}

// WaitReady waits until a launched server accepts clients.
func (s *Server) WaitReady() {
	s.tb.Helper()
	s.waitLog("Server is ready")
}

// Restart stops the server if it runs and starts it on the same port and store.
func (s *Server) Restart() {
	s.tb.Helper()
	if s.Running() {
		s.Stop()
	}
	s.Start()
}

// Stop ends the server in order (SIGTERM) and waits for its end.
func (s *Server) Stop() {
	s.tb.Helper()
	if !s.Running() {
		return
	}
	// It may end by itself at any moment; what counts is that it ends.
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // a frozen one would never see it
	select {
	case <-s.done:
	case <-time.After(patience):
		s.Kill()
		s.tb.Fatalf("natstest: %s ignored SIGTERM for %v", s.o.Name, patience)
	}
}

// Kill ends the server at once (SIGKILL), frozen or not.
func (s *Server) Kill() {
	if !s.Running() {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself meanwhile
	<-s.done
}

// Freeze stops the process without closing its connections (SIGSTOP), and
// waits until it has stopped.
func (s *Server) Freeze() {
	s.tb.Helper()
	s.Signal(syscall.SIGSTOP)
	s.wait("stop of every thread", func() bool { return frozen(s.PID()) })
}

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() { s.tb.Helper(); s.Signal(syscall.SIGCONT) }

// LameDuck tells the server to move its clients away and end (SIGUSR2).
func (s *Server) LameDuck() { s.tb.Helper(); s.Signal(syscall.SIGUSR2) }

// Signal sends sig to the process.
func (s *Server) Signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("natstest: signal %v to %s: %v", sig, s.o.Name, err)
	}
}

// SetConfig replaces Options.Config; it takes effect at the next start or
// [Server.Reload].
func (s *Server) SetConfig(text string) { s.o.Config = text }

// Reload makes the running server read its configuration again and waits until
// it has. Settings that cannot be reloaded fail the test.
func (s *Server) Reload() {
	s.tb.Helper()
	s.writeConfig()
	const reloaded = "Reloaded server configuration"
	before := strings.Count(s.Log(), reloaded)
	s.Signal(syscall.SIGHUP)
	s.wait("reload", func() bool {
		if strings.Contains(s.Log(), "Failed to reload server configuration") {
			s.tb.Fatalf("natstest: reload refused:\n%s", tail(s.Log(), 5))
		}
		return strings.Count(s.Log(), reloaded) > before
	})
}

// Running tells whether the process has been started and has not ended.
func (s *Server) Running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// URL is the address for clients, without user information.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.o.Port) }

// Name is the server_name.
func (s *Server) Name() string { return s.o.Name }

// Port is the client port.
func (s *Server) Port() int { return s.o.Port }

// PID is the process id of the last start.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Store is the JetStream store directory.
func (s *Server) Store() string { return s.o.Store }

// ConfigFile is the configuration file that the server reads.
func (s *Server) ConfigFile() string { return filepath.Join(s.dir, "server.conf") }

// Log is what the current process has logged so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return ""
	}
	return string(text)
}

// Conn connects a client, with s.URL() unless opts say otherwise. It reconnects
// for ever and is closed by the test's cleanup.
func (s *Server) Conn(opts ...nats.Option) *nats.Conn {
	s.tb.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.Name("natstest"),
	}, opts...)
	nc, err := nats.Connect(s.URL(), opts...)
	if err != nil {
		s.tb.Fatalf("natstest: connecting to %s: %v", s.o.Name, err)
	}
	s.tb.Cleanup(nc.Close)
	return nc
}

// JetStream connects a client and returns its JetStream interface.
func (s *Server) JetStream(opts ...nats.Option) jetstream.JetStream {
	s.tb.Helper()
	js, err := jetstream.New(s.Conn(opts...))
	if err != nil {
		s.tb.Fatal(err)
	}
	return js
}

func (s *Server) writeConfig() {
	s.tb.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "server_name: %q\nlisten: \"127.0.0.1:%d\"\n", s.o.Name, s.o.Port)
	if !s.o.NoJetStream {
		fmt.Fprintf(&b, "jetstream: {store_dir: %q}\n", s.o.Store)
	}
	b.WriteString(s.o.Config)
	b.WriteByte('\n')
	if err := os.WriteFile(s.ConfigFile(), b.Bytes(), 0o600); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *Server) waitLog(text string) {
	s.tb.Helper()
	s.wait("log line "+text, func() bool {
		if strings.Contains(s.Log(), text) {
			return true
		}
		if !s.Running() {
			s.tb.Fatalf("natstest: %s ended at start:\n%s", s.o.Name, tail(s.Log(), 10))
		}
		return false
	})
}

func (s *Server) wait(what string, ok func() bool) {
	s.tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.tb.Fatalf("natstest: %s: no %s within %v:\n%s", s.o.Name, what, patience, tail(s.Log(), 10))
		}
	}
}

var binary = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "nats-server")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("natstest: go tool -n nats-server: %w: %s", err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
})

// Binary is the path of the nats-server executable.
func Binary(tb testing.TB) string {
	tb.Helper()
	path, err := binary()
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// FreePort is a loopback port that nothing listened on a moment ago, outside
// the range of source ports.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	tb.Fatal("natstest: no free port between 10000 and 30000")
	return 0
}

// tail is the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
