//go:build unix

package integration

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// A relay that stood still for longer than its lease wakes up as somebody whose
// rows belong to another: it changes none of them.
func TestLateRelayChangesNothing(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	c := s.config()
	c.Lease, c.PublishTimeout = 2*time.Second, time.Second
	c.Worker, c.Metrics = "late", harness.FreeAddress(t)
	late := harness.StartRelay(t, "late", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Freeze()
	n := s.waitProduced(s.produce(1, 50, 0))
	s.waitClaimed(n)
	late.Freeze()
	s.nats.Thaw()

	heir := s.config()
	heir.Worker = "heir"
	second := harness.StartRelay(t, "heir", heir, s.faults)
	s.db.WaitDelivered(n, harness.Patience)
	const fingerprint = "SELECT sum(attempts) || ' ' || group_concat(delivered_at) FROM dovecote_deliveries"
	before := s.text(fingerprint)
	late.Thaw()
	harness.Eventually(t, harness.Patience, "the late relay counts its lost claims", func() (bool, string) {
		return harness.Metric(t, c.Metrics, "relay_lost_claims_total") >= float64(n), late.Log()
	})
	if after := s.text(fingerprint); after != before {
		t.Errorf("the late relay changed rows: %s, before %s", after, before)
	}
	late.Stop()
	second.Stop()
	s.check(n, harness.Expect{})
	if worn := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts > 2"); worn > 0 {
		t.Errorf("%d rows count more attempts than there were", worn)
	}
}

// The token alone decides who owns a row, not the worker's name or the row id.
func TestForeignTokenIsRespected(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	c := s.config()
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Freeze()
	n := s.waitProduced(s.produce(1, 10, 0))
	s.waitClaimed(n)
	s.db.Exec(`UPDATE dovecote_deliveries SET claim_token = randomblob(16), claimed_by = 'somebody'
		WHERE event_row_id = (SELECT min(event_row_id) FROM dovecote_deliveries)`)
	s.nats.Thaw()
	s.waitDeliveredAtLeast(n - 1)
	if owner := s.text("SELECT claimed_by FROM dovecote_deliveries WHERE state = 'claimed'"); owner != "somebody" {
		t.Errorf("the row belongs to %q, want somebody", owner)
	}
	s.db.WaitDelivered(n, harness.Patience) // after the foreign lease has ended
	relay.Stop()
	s.check(n, harness.Expect{})
}

// A row during whose every claim the relay dies must not kill it for ever.
func TestRowThatKillsEveryRelayEndsQuarantined(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	c := s.config()
	c.MaxAttempts = 2
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Freeze() // the row stays claimed
	n := s.waitProduced(s.produce(1, 5, 0))
	for claims := 1; claims <= c.MaxAttempts; claims++ {
		harness.Eventually(t, harness.Patience, "the rows are claimed again", func() (bool, string) {
			got := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE state = 'claimed' AND attempts = ?", claims)
			return got == n, s.db.States().String()
		})
		relay.Kill()
		s.nats.Thaw()
		if claims < c.MaxAttempts {
			relay.Start()
			harness.WaitReady(t, c.Metrics)
			s.nats.Freeze() // long before the dead relay's leases end
		}
	}
	relay.Start()
	harness.Eventually(t, harness.Patience, "the rows are quarantined", func() (bool, string) {
		states := s.db.States()
		return states.Quarantined == n, states.String()
	})
	if reason := s.text("SELECT min(quarantine_reason) FROM dovecote_deliveries"); !strings.HasPrefix(reason, "crash_loop") {
		t.Errorf("quarantined for %q, want crash_loop", reason)
	}
	relay.Stop()
}

// A relay must not go on with a file that nobody can reach any more.
func TestReplacedFileEndsTheRelay(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	n := s.waitProduced(s.produce(1, 20, 0))
	s.db.WaitDelivered(n, harness.Patience)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(s.db.Path+suffix, s.db.Path+".old"+suffix); err != nil {
			t.Fatal(err)
		}
	}
	harness.MustRun(t, "migrate", "--create", "--db", s.db.Path)
	if code := relay.WaitExit(10 * time.Second); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if !strings.Contains(relay.Log(), s.db.Path) {
		t.Error("the log does not name the file")
	}
}

// waitClaimed waits until n rows are claimed.
func (s *stage) waitClaimed(n int) {
	s.t.Helper()
	harness.Eventually(s.t, harness.Patience, "rows are claimed", func() (bool, string) {
		states := s.db.States()
		return states.Claimed >= n, states.String()
	})
}

// text is the single text that query selects.
func (s *stage) text(query string) string {
	s.t.Helper()
	var text string
	if err := s.db.SQL.QueryRow(query).Scan(&text); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return text
}
