//go:build unix

package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/workload"
)

// Two relays that start at the same moment on a file that is not in WAL mode yet,
// an application that writes all the time, and a third party that holds the writer
// lock now and then: nobody is told that the file is locked, and no row is
// claimed twice.
func TestEverybodyGetsTheWriterLock(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	s.db.Exec("PRAGMA journal_mode = DELETE")
	c := s.config()
	c.Lease = 20 * time.Second
	first := harness.StartRelay(t, "first", c, s.faults)
	second := harness.StartRelay(t, "second", c, s.faults)
	app := harness.StartProducer(t, workload.Options{DB: s.db.Path, Name: "app", Orders: 1600, Every: 5 * time.Millisecond})
	seen := harness.StartLocker(t, harness.LockOptions{
		DB: s.db.Path, Times: 3, Hold: 2 * time.Second, Pause: time.Second, Write: true, Wait: 5 * time.Second,
	}).Wait(time.Minute)
	report := app.Wait(time.Minute)
	if seen.Refused > 0 || report.Busy > 0 {
		t.Errorf("the third party was refused %d times, the application %d times", seen.Refused, report.Busy)
	}
	s.db.WaitDelivered(report.Committed, time.Minute)
	first.Stop()
	second.Stop()
	for _, relay := range []*harness.Relay{first, second} {
		if log := relay.Log(); strings.Contains(log, "locked") || strings.Contains(log, `"warn"`) {
			t.Errorf("log:\n%s", log)
		}
	}
	s.check(report.Committed, harness.Expect{})
	if again := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts <> 1"); again > 0 {
		t.Errorf("%d rows were claimed more than once", again)
	}
	if mode := s.text("PRAGMA journal_mode"); mode != "wal" {
		t.Errorf("journal mode %s", mode)
	}
}

// With retention, a steady flow leaves neither a growing table nor a growing log,
// and never keeps the application from writing. What a person has to look at stays.
func TestRetentionKeepsUpWithoutBlockingTheApplication(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	c := s.config()
	c.Extra = "[retention]\ndelivered = \"500ms\"\nevery = \"200ms\"\nbatch = 100\n"
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.insert(event{id: "for a person", stream: "bad", data: []byte("{")})
	app := harness.StartProducer(t, workload.Options{
		DB: s.db.Path, Name: "app", Orders: 8000, PerTx: 5, Every: 5 * time.Millisecond, Payload: 1000,
	})
	var mostRows int
	var mostLog int64
	harness.Steadily(t, 8*time.Second, "the log stays small", func() (bool, string) {
		if info, err := os.Stat(s.db.Path + "-wal"); err == nil {
			mostLog = max(mostLog, info.Size())
		}
		mostRows = max(mostRows, s.db.Int("SELECT count(*) FROM dovecote_events"))
		return mostLog < 64<<20, fmt.Sprintf("%d rows, log %d bytes", mostRows, mostLog)
	})
	report := app.Wait(time.Minute)
	if report.Busy > 0 {
		t.Errorf("the application found the file locked %d times", report.Busy)
	}
	harness.Eventually(t, harness.Patience, "only the quarantined row is left", func() (bool, string) {
		states := s.db.States()
		return states == harness.States{Quarantined: 1}, states.String()
	})
	relay.Stop()
	t.Logf("at most %d rows of %d, log %d bytes", mostRows, report.Committed, mostLog)
	if mostRows >= report.Committed {
		t.Errorf("the table held all %d rows at once", mostRows)
	}
	ids := map[string]int{}
	for _, m := range s.stored("EVENTS") {
		ids[m.Header.Get("Nats-Msg-Id")]++
	}
	if len(ids) != report.Committed {
		t.Errorf("%d different events are stored, want %d", len(ids), report.Committed)
	}
}

// Times that no relay could have written: a lease that ends in ten years belongs
// to whoever holds it, and is reported; due times far away, or in the past, stop
// nothing.
func TestImpossibleTimesAreReportedAndStopNothing(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	all := s.insert(event{id: "leased for ten years"}, event{id: "due in ten years"}, event{id: "due ten years ago"},
		event{id: "lease ended ten years ago"}, event{id: "due at nothing"}, event{id: "plain"})
	const byID = ` WHERE event_row_id = (SELECT row_id FROM dovecote_events WHERE event_id = ?)`
	const claim = `UPDATE dovecote_deliveries SET state = 'claimed', attempts = 1, claim_token = randomblob(16), claimed_by = 'x', claim_expires_at = `
	s.db.Exec(claim+`strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+10 years')`+byID, "leased for ten years")
	s.db.Exec(claim+`strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-10 years')`+byID, "lease ended ten years ago")
	s.db.Exec(`UPDATE dovecote_deliveries SET available_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+10 years')`+byID, "due in ten years")
	s.db.Exec(`UPDATE dovecote_deliveries SET available_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-10 years')`+byID, "due ten years ago")
	s.db.Exec(`UPDATE dovecote_deliveries SET available_at = '0'`+byID, "due at nothing")
	relay := s.startRelay("relay")
	s.waitState("delivered", "plain", "due ten years ago", "lease ended ten years ago", "due at nothing")
	for id, state := range map[string]string{"leased for ten years": "claimed", "due in ten years": "pending"} {
		if d := s.delivery(id); d.state != state {
			t.Errorf("%s: %s, want %s", id, d.state, state)
		}
	}
	for _, args := range [][]string{{"status", "--db", s.db.Path}, {"check", "--db", s.db.Path}} {
		ran := harness.Run(t, "", args...)
		if !strings.Contains(ran.Stdout, "too far ahead") {
			t.Errorf("relay %s does not report the lease: %s%s", args[0], ran.Stdout, ran.Stderr)
		}
		if args[0] == "check" && ran.Code != 3 {
			t.Errorf("relay check exits %d, want 3", ran.Code)
		}
	}
	// The remedy that the report names.
	s.db.Exec(`UPDATE dovecote_deliveries SET claim_expires_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')` + ` WHERE state = 'claimed'`)
	s.waitState("delivered", "leased for ten years")
	relay.Stop()
	s.verify(harness.Expect{Also: all, Unfinished: true})
}
