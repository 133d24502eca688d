//go:build unix

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// Redeploys under load, with a duplicate window that is shorter than a restart:
// nothing is published twice, because each drain waits for the answers.
func TestRedeploysPublishNothingTwice(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := stageWith(t, "", allEvents(100*time.Millisecond))
	relay := s.startRelay("relay")
	producers := s.produce(2, 1500, 2*time.Millisecond)
	for i := range 8 {
		s.waitDeliveredAtLeast(250 * (i + 1))
		began := time.Now()
		relay.Stop()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the drain took %v", took)
		}
		if states := s.db.States(); states.Claimed > 0 || states.Quarantined > 0 {
			t.Errorf("after SIGTERM: %v", states)
		}
		relay.Start()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	relay.Stop()
	if failed := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE last_failure_code IS NOT NULL"); failed > 0 {
		t.Errorf("%d rows carry a failure though only restarts happened", failed)
	}
	s.check(n, harness.Expect{})
}

// Whatever a drain waits for, it ends within its limit and says what it left.
func TestDrainEndsInTimeWhateverItWaitsFor(t *testing.T) {
	harness.Heavy(t)
	const drain = 3 * time.Second
	for _, c := range []struct {
		name    string
		trouble func(s *stage)
		after   func(s *stage)
		code    int
		left    string // state of the rows afterwards
	}{
		{"frozen broker", func(*stage) {}, func(*stage) {}, 0, "pending"},
		{"dead broker", func(s *stage) { s.killBroker() }, func(s *stage) { s.nats.Start() }, 0, "pending"},
		{"locked database", func(s *stage) {
			l := harness.StartLocker(s.t, harness.LockOptions{DB: s.db.Path, Times: 1, Hold: 20 * time.Second, Wait: harness.Patience})
			s.t.Cleanup(l.Kill)
			s.held = l
		}, func(s *stage) { s.held.Kill() }, 1, "claimed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			config := s.config()
			config.Drain, config.Lease, config.PublishTimeout = drain, 20*time.Second, 8*time.Second
			config.Metrics = harness.FreeAddress(t)
			relay := harness.StartRelay(t, "relay", config, s.faults)
			harness.WaitReady(t, config.Metrics)
			s.nats.Freeze()
			n := s.waitProduced(s.produce(1, 50, 0))
			s.waitClaimed(n)
			c.trouble(s)
			began := time.Now()
			relay.Terminate()
			if code := relay.WaitExit(harness.Patience); code != c.code {
				t.Errorf("exit %d, want %d:\n%s", code, c.code, relay.Log())
			}
			if c.code != 0 && !strings.Contains(relay.Log(), "writer slot was taken") {
				t.Errorf("the log does not say what the drain waited for:\n%s", relay.Log())
			}
			if took := time.Since(began); took > drain+3*time.Second {
				t.Errorf("the drain took %v", took)
			}
			c.after(s)
			if got := s.text("SELECT group_concat(DISTINCT state) FROM dovecote_deliveries"); got != c.left {
				t.Errorf("rows are left %s, want %s", got, c.left)
			}
			if s.nats.Running() {
				s.nats.Thaw()
			}
			s.db.Exec("UPDATE dovecote_deliveries SET claim_expires_at = available_at WHERE state = 'claimed'")
			relay.Start()
			s.db.WaitDelivered(n, harness.Patience)
			relay.Stop()
			s.check(n, harness.Expect{})
		})
	}
}

// A second signal does not wait for anything.
func TestSecondSignalEndsTheDrain(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	c := s.config()
	c.Drain, c.Lease, c.PublishTimeout = time.Minute, 25*time.Second, 12*time.Second
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Freeze()
	n := s.waitProduced(s.produce(1, 50, 0))
	s.waitClaimed(n)
	relay.Terminate()
	harness.Eventually(t, harness.Patience, "the drain has begun", func() (bool, string) {
		return strings.Contains(relay.Log(), "stopping"), relay.Log()
	})
	began := time.Now()
	s.faults.Record("relay told twice")
	if err := syscall.Kill(relay.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := relay.WaitExit(harness.Patience); code != 1 || time.Since(began) > 2*time.Second {
		t.Errorf("exit %d after %v, want 1 at once", code, time.Since(began))
	}
	s.nats.Thaw()
	s.db.Exec("UPDATE dovecote_deliveries SET claim_expires_at = available_at WHERE state = 'claimed'")
	relay.Start()
	s.db.WaitDelivered(n, harness.Patience)
	relay.Stop()
	s.check(n, harness.Expect{})
}

// Twenty deaths at any moment, with a second relay that is never restarted.
func TestTwentyKillsLoseNothing(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	relay := s.startRelay("relay")
	other := s.startRelay("other")
	producers := s.produce(2, 1500, 2*time.Millisecond)
	for i := range 20 {
		s.waitDeliveredAtLeast(100 * (i + 1))
		relay.Kill()
		relay.Start()
	}
	n := s.waitProduced(producers)
	s.db.WaitDelivered(n, time.Minute)
	if !other.Running() {
		t.Error("the other relay has ended")
	}
	relay.Stop()
	other.Stop()
	s.check(n, harness.Expect{})
	if worn := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE attempts > 19"); worn > 0 {
		t.Errorf("%d rows were claimed too often", worn)
	}
}

// A row number that comes back, after a purge or a restore, is no event that
// was sent before.
func TestRowNumbersAreNoIdentity(t *testing.T) {
	harness.Heavy(t)
	t.Parallel()
	s := newStage(t)
	c := s.config()
	c.Extra = "[retention]\ndelivered = \"1ms\"\nevery = \"100ms\"\n"
	relay := harness.StartRelay(t, "relay", c, s.faults)
	s.insert(event{id: "first"})
	harness.Eventually(t, harness.Patience, "the row is purged", func() (bool, string) {
		return s.db.Int("SELECT count(*) FROM dovecote_events") == 0, s.db.States().String()
	})
	s.insert(event{id: "after the purge"})
	harness.Eventually(t, harness.Patience, "both are stored", func() (bool, string) {
		n := len(s.stored("EVENTS"))
		return n == 2, fmt.Sprint(n)
	})
	harness.Eventually(t, harness.Patience, "the row is purged", func() (bool, string) {
		return s.db.Int("SELECT count(*) FROM dovecote_events") == 0, s.db.States().String()
	})
	relay.Stop()

	// As a restore of an older state would: the counter goes back.
	s.db.Exec("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'dovecote_events'")
	s.insert(event{id: "after the restore"})
	if row := s.db.Int("SELECT max(row_id) FROM dovecote_events"); row != 1 {
		t.Fatalf("row %d: the number has not come back", row)
	}
	plain := s.config()
	again := harness.StartRelay(t, "again", plain, s.faults)
	s.waitState("delivered", "after the restore")
	again.Stop()
	ids := map[string]int{}
	for _, m := range s.stored("EVENTS") {
		ids[m.Header.Get("ce-id")]++
	}
	for _, id := range []string{"first", "after%20the%20purge", "after%20the%20restore"} {
		if ids[id] != 1 {
			t.Errorf("%s is stored %d times: %v", id, ids[id], ids)
		}
	}
}
