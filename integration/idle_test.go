//go:build unix

package integration

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/harness"
)

// An idle relay takes no writer lock: a process that gives up at the first
// refusal is never refused, and the file does not change.
func TestIdleRelayLeavesTheWriterLockAlone(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	relay := s.startRelay("relay")
	n := s.waitProduced(s.produce(1, 50, 0))
	s.db.WaitDelivered(n, harness.Patience)

	s.wantNoChange(3 * time.Second)
	for _, c := range []struct {
		name string
		o    harness.LockOptions
	}{
		{"locks and unlocks", harness.LockOptions{Times: 2000, Pause: time.Millisecond}},
		{"commits of the application", harness.LockOptions{Times: 2000, Pause: time.Millisecond, Write: true}},
		{"a lock held for seconds", harness.LockOptions{Times: 2, Hold: 3 * time.Second, Write: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.DB = s.db.Path
			seen := harness.StartLocker(t, c.o).Wait(harness.Patience)
			if seen.Refused > 0 || seen.Held != c.o.Times {
				t.Errorf("the lock was held %d times and refused %d times, want %d and 0", seen.Held, seen.Refused, c.o.Times)
			}
		})
	}

	// It is idle, not asleep.
	more := s.waitProduced(s.produce(1, 50, 0))
	s.db.WaitDelivered(n+more, 5*time.Second)
	relay.Stop()
	s.check(n+more, harness.Expect{})
}

// wantNoChange watches the commit counter and the WAL for d.
func (s *stage) wantNoChange(d time.Duration) {
	s.t.Helper()
	conn, err := s.db.SQL.Conn(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	look := func() (version int64, size int64, modified time.Time) {
		if err := conn.QueryRowContext(context.Background(), "PRAGMA data_version").Scan(&version); err != nil {
			s.t.Fatal(err)
		}
		if info, err := os.Stat(s.db.Path + "-wal"); err == nil {
			size, modified = info.Size(), info.ModTime()
		}
		return version, size, modified
	}
	version, size, modified := look()
	harness.Steadily(s.t, d, "an idle relay writes nothing", func() (bool, string) {
		v, n, m := look()
		return v == version && n == size && m.Equal(modified), "the file changed"
	})
}

// While another process holds the lock for longer than the busy timeout, the
// relay waits; the rows it has published are acknowledged afterwards.
func TestLongForeignLockCostsNothing(t *testing.T) {
	harness.Heavy(t)
	s := newStage(t)
	c := s.config()
	c.Outbox = "busy_timeout = \"1s\"\nbusy_retries = 1"
	c.Metrics = harness.FreeAddress(t)
	relay := harness.StartRelay(t, "relay", c, s.faults)
	harness.WaitReady(t, c.Metrics)
	s.nats.Freeze()
	n := s.waitProduced(s.produce(1, 100, 0))
	s.waitClaimed(1)
	locker := harness.StartLocker(t, harness.LockOptions{
		DB: s.db.Path, Times: 1, Hold: 8 * time.Second, Wait: harness.Patience,
	})
	s.nats.Thaw() // the acknowledgements arrive, and cannot be recorded
	locker.Wait(harness.Patience)
	s.db.WaitDelivered(n, harness.Patience)
	relay.Stop()
	s.check(n, harness.Expect{})
	if failed := s.db.Int("SELECT count(*) FROM dovecote_deliveries WHERE last_failure_code IS NOT NULL"); failed > 0 {
		t.Errorf("%d rows carry a failure though only the lock was taken", failed)
	}
}
