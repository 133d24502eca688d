package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/outbox"
)

func TestCheckAsksTheBroker(t *testing.T) {
	s := broker(t)
	dir := t.TempDir()
	db := filepath.Join(dir, "o.db")
	if _, err := outbox.Migrate(t.Context(), db, outbox.MigrateOptions{Create: true}); err != nil {
		t.Fatal(err)
	}
	check := func(subject string) (int, checkReport) {
		t.Helper()
		file := filepath.Join(dir, "relay.toml")
		text := strings.NewReplacer("%DB%", db, "%NATS%", strings.Replace(s.URL(), "nats://", "nats://user:hunter2@", 1),
			"ev.{stream}.{type}", subject).Replace(simpleConfig)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := runCommand(t, "", "check", "--config", file, "--json")
		if strings.Contains(r.stdout+r.stderr, "hunter2") {
			t.Errorf("prints a password: %s", r.stdout)
		}
		var report checkReport
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
			t.Fatalf("%q: %v", r.stdout, err)
		}
		for _, f := range report.Findings {
			if f.Why == "" || f.Fix == "" || f.Problem == "" || f.Subject == "" {
				t.Errorf("incomplete finding %+v", f)
			}
		}
		return r.code, report
	}
	if code, report := check("ev.{stream}.{type}"); code != 0 || report.Errors != 0 {
		t.Errorf("with a stream: exit code %d, %+v", code, report)
	}
	if code, report := check("nowhere.{stream}"); code != exitFindings || report.Errors == 0 {
		t.Errorf("without a stream: exit code %d, %+v", code, report)
	}
}
