package outbox_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func TestCommitsAreNoticed(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	c, err := s.Commits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	version := func() int64 {
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	last := version()
	if version() != last {
		t.Error("changed without a commit")
	}
	tx, err := outbox.Begin(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outbox.Enqueue(t.Context(), tx, event("acme", "1")); err != nil {
		t.Fatal(err)
	}
	if version() != last {
		t.Error("changed before the commit")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	next := version()
	if next == last {
		t.Error("an app's commit went unnoticed")
	}
	claim(t, s.AllTenants(), 1)
	if version() == next {
		t.Error("this store's own commit went unnoticed")
	}
}

// Looking takes no lock that a writer could notice, and does not wait for one.
func TestLookingNeedsNoLock(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 2)...)
	c, err := s.Commits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	impatient, err := sql.Open("sqlite", "file:"+s.Path()+"?_pragma=busy_timeout(0)")
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close()
	tx, err := outbox.Begin(t.Context(), impatient)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(t.Context()); err != nil {
		t.Error(err)
	}
	if due, err := s.AllTenants().Due(t.Context()); err != nil || !due.Ready {
		t.Error(due, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 50 { // each would fail at once on any lock of ours
		tx, err := outbox.Begin(t.Context(), impatient)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDueTellsTheNextTime(t *testing.T) {
	c := &clock{noon}
	s := outboxtest.NewStore(t, c.option)
	db := outboxtest.Producer(t, s.Path())
	h := s.AllTenants()
	want := func(name string, ready bool, next time.Time) {
		t.Helper()
		due, err := h.Due(t.Context())
		if err != nil || due.Ready != ready || !due.Next.Equal(next) || !due.Now.Equal(c.now) {
			t.Errorf("%s: %+v, %v", name, due, err)
		}
	}
	want("nothing there", false, time.Time{})
	outboxtest.Enqueue(t, db, events("acme", 3)...)
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-05-01T12:00:10.000000Z'`)
	want("due in 10 s", false, noon.Add(10*time.Second))
	c.now = noon.Add(10*time.Second - time.Millisecond)
	want("a millisecond before", false, noon.Add(10*time.Second))
	c.now = noon.Add(10 * time.Second)
	want("due now", true, time.Time{})
	claimed := claim(t, h, 10)
	want("all claimed for a minute", false, noon.Add(70*time.Second))
	if _, err := h.Settle(t.Context(), []outbox.Settlement{settlement(claimed[0], outbox.Retry)}); err != nil {
		t.Fatal(err)
	}
	want("an expiry before a retry", false, noon.Add(70*time.Second))
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-05-01T12:00:30Z' WHERE state = 'pending'`)
	want("a time without a fraction", false, noon.Add(30*time.Second))
	c.now = noon.Add(70 * time.Second)
	want("a claim has expired", true, time.Time{})
}
