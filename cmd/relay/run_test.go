package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func TestRunTellsTheServiceManager(t *testing.T) {
	s := broker(t)
	r := startRelay(t, s.URL(), simpleConfig, "WATCHDOG_USEC=2000000")
	r.waitTold("READY=1")
	r.enqueue(20)
	r.wait("delivery", func() bool { return r.delivered() == 20 })
	r.wait("five pings", func() bool { return len(r.notes("WATCHDOG=1")) >= 5 })
	r.pings(2 * time.Second)
	if list := r.notes("STATUS="); len(list) == 0 || !strings.Contains(list[0].text, "events/s") {
		t.Errorf("status %v", list)
	}
	r.signal(syscall.SIGTERM)
	if code := r.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := len(r.notes("STOPPING=1")); n != 1 {
		t.Errorf("STOPPING told %d times", n)
	}
	everyLineIsJSON(t, r.text())
}

func everyLineIsJSON(t *testing.T, text string) {
	t.Helper()
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		var object map[string]any
		if err := json.Unmarshal(lines.Bytes(), &object); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
		}
	}
}

func TestShortWatchdogIsFedWhileTheBrokerIsDown(t *testing.T) {
	s := natstest.FreePort(t)
	r := startRelay(t, fmt.Sprintf("nats://127.0.0.1:%d", s), simpleConfig, "WATCHDOG_USEC=500000")
	r.waitTold("READY=1")
	r.enqueue(5)
	r.wait("trouble in STATUS", func() bool {
		list := r.notes("STATUS=")
		return len(list) > 0 && strings.Contains(list[len(list)-1].text, "broker unusable")
	})
	r.wait("twenty pings", func() bool { return len(r.notes("WATCHDOG=1")) >= 20 })
	r.pings(500 * time.Millisecond)
	r.signal(syscall.SIGTERM)
	if code := r.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWatchdogIsFedWhileTheDatabaseIsLocked(t *testing.T) {
	s := broker(t)
	r := startRelay(t, s.URL(), simpleConfig, "WATCHDOG_USEC=2000000")
	r.waitTold("READY=1")
	r.enqueue(1)
	r.wait("delivery", func() bool { return r.delivered() == 1 })
	db := outboxtest.Producer(t, r.db)
	tx, err := outbox.Begin(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.Enqueue(t.Context(), tx, outbox.Event{Tenant: "t", Stream: "s", ID: "locked", Source: "/x", Type: "a"}); err != nil {
		t.Fatal(err)
	}
	locked := len(r.notes("WATCHDOG=1"))
	r.wait("ten pings under the lock", func() bool { return len(r.notes("WATCHDOG=1")) >= locked+10 })
	r.pings(2 * time.Second)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	r.wait("delivery after the lock", func() bool { return r.delivered() == 2 })
}

func TestBadConfigurationIsNeverReady(t *testing.T) {
	r := startRelay(t, "nats://127.0.0.1:1", simpleConfig+"\n[log]\nlevel = \"disabled\"\n")
	if code := r.exit(); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if list := r.notes(""); len(list) > 0 {
		t.Errorf("told %v", list)
	}
	if !regexp.MustCompile(`^relay: .*relay.toml:\d+: log.level: "disabled" is none of .*\n$`).MatchString(r.text()) {
		t.Errorf("said %q", r.text())
	}
}

func TestReloadTakesRoutesAndRefusesMistakes(t *testing.T) {
	s := broker(t)
	r := startRelay(t, s.URL(), strings.Replace(simpleConfig, "ev.{stream}", "nowhere.{stream}", 1))
	r.waitTold("READY=1")
	r.enqueue(1)
	r.wait("a paused route", func() bool {
		list := r.notes("STATUS=")
		return len(list) > 0 && strings.Contains(list[len(list)-1].text, "[no_stream]")
	})

	r.write("[outbox]\npath = 7\n", "")
	r.signal(syscall.SIGHUP)
	r.wait("refusal", func() bool {
		list := r.notes("STATUS=")
		return len(list) > 0 && strings.Contains(list[len(list)-1].text, "reload refused")
	})
	if !strings.Contains(r.text(), "configuration not reloaded, the old one goes on") {
		t.Error("the log does not say that the reload was refused")
	}

	r.write(simpleConfig, s.URL())
	r.signal(syscall.SIGHUP)
	r.wait("delivery by the new route", func() bool { return r.delivered() == 1 })
	if list := r.notes("RELOADING=1\nMONOTONIC_USEC="); len(list) != 2 {
		t.Errorf("RELOADING told %v", list)
	}
	if list := r.notes("READY=1"); len(list) != 3 {
		t.Errorf("READY told %v", list)
	}
}

func TestHTTPEndpoints(t *testing.T) {
	s := broker(t)
	address := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	r := startRelay(t, s.URL(), simpleConfig+"[metrics]\nlisten = \""+address+"\"\n")
	r.waitTold("READY=1")
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	r.wait("readiness", func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	if code, body := get("/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	if code, body := get("/metrics"); code != http.StatusOK || !strings.Contains(body, "relay_in_flight") {
		t.Errorf("/metrics: %d", code)
	}
	if code, _ := get("/"); code != http.StatusOK {
		t.Errorf("/: %d", code)
	}
	if code, _ := get("/nowhere"); code != http.StatusNotFound {
		t.Errorf("/nowhere: %d", code)
	}
	resp, err := http.Post("http://"+address+"/metrics", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", resp.StatusCode)
	}

	s.Stop()
	r.wait("unreadiness", func() bool {
		code, body := get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "broker unusable since")
	})
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz without a broker: %d", code)
	}
}

// At start the loop waits a little for the connection; until that stands nothing is
// ready.
func TestNotReadyBeforeTheFirstConnection(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	address := fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))
	startRelay(t, "nats://"+mute.Addr().String(), simpleConfig+"[metrics]\nlisten = \""+address+"\"\n")
	for answers, end := 0, time.Now().Add(patience); answers < 20; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no answer from /readyz")
		}
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			continue
		}
		resp.Body.Close()
		answers++
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("/readyz: %d without a connection", resp.StatusCode)
		}
	}
}

func TestTakenListenAddressIsOneClearError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := startRelay(t, "nats://127.0.0.1:1", simpleConfig+"[metrics]\nlisten = \""+l.Addr().String()+"\"\n[log]\nlevel = \"error\"\n")
	if code := r.exit(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if text := r.text(); !strings.HasPrefix(text, "relay: metrics.listen: ") || strings.Count(text, "\n") != 1 {
		t.Errorf("said %q", text)
	}
	if list := r.notes(""); len(list) > 0 {
		t.Errorf("told %v", list)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := broker(t)
	r := startRelay(t, s.URL(), strings.Replace(strings.Replace(simpleConfig, `drain = "2s"`, `drain = "1m"`, 1),
		`lease = "2s"`, `lease = "10m"`, 1)+"", "WATCHDOG_USEC=2000000")
	r.waitTold("READY=1")
	r.enqueue(1)
	r.wait("delivery", func() bool { return r.delivered() == 1 })
	s.Freeze() // acknowledgements stay out
	defer s.Thaw()
	r.enqueue(50)
	r.wait("claims", func() bool {
		out, err := exec.CommandContext(t.Context(), "relay", "list", "--db", r.db, "--state", "claimed", "--json").Output()
		return err == nil && len(out) > 0
	})
	r.signal(syscall.SIGTERM)
	r.waitTold("STOPPING=1")
	r.signal(syscall.SIGTERM)
	began := time.Now()
	code := r.exit()
	if code == 0 {
		t.Skip("the drain was faster than the second signal")
	}
	if code != exitFailed || time.Since(began) > 5*time.Second {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	if !strings.Contains(r.text(), "relay: second signal (terminated): stopped at once") {
		t.Errorf("said %q", r.text())
	}
}

func TestUnusableDatabaseIsNeverReady(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	tests := []struct{ name, file, content, remedy string }{
		{"missing", "missing.db", "", "--create"},
		{"empty", "empty.db", "", ""},
		{"text", "text.db", strings.Repeat("this is no database. ", 50), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.file)
			if tt.name != "missing" {
				if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			config := filepath.Join(dir, tt.name+".toml")
			text := strings.NewReplacer("%DB%", path, "%NATS%", "nats://127.0.0.1:1").Replace(simpleConfig)
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var stderr bytes.Buffer
			cmd := exec.CommandContext(ctx, "relay", "run", "--config", config)
			cmd.Stderr = &stderr
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitFailed {
				t.Errorf("ended with %v", err)
			}
			if s := stderr.String(); !strings.HasPrefix(s, "relay: ") || strings.Count(s, "\n") != 1 || !strings.Contains(s, path) || !strings.Contains(s, tt.remedy) {
				t.Errorf("said %q", s)
			}
			after, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(after) != len(before) {
				t.Errorf("files before %v, after %v", before, after)
			}
		})
	}
}
