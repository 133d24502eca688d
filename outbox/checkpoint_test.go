package outbox_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

const pageSize = 4096

func logBytes(t *testing.T, s *outbox.Store) int64 {
	t.Helper()
	info, err := os.Stat(s.Path() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// turn claims a row and gives it back, which makes the log longer.
func turn(t *testing.T, h *outbox.Handle, limit int) {
	t.Helper()
	var batch []outbox.Settlement
	for _, c := range claim(t, h, limit) {
		s := settlement(c, outbox.Release)
		s.Delay = 0
		batch = append(batch, s)
	}
	if _, err := h.Settle(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

// The log is moved into the file as it grows, and used again from its start.
func TestTheLogStaysShort(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	db.SetMaxOpenConns(1)
	must(t, db, `PRAGMA wal_autocheckpoint = 0`)
	outboxtest.Enqueue(t, db, events("acme", 50)...)
	must(t, db, `CREATE TABLE bulk (x)`)
	longest := int64(0)
	for range 12 {
		must(t, db, `INSERT INTO bulk VALUES (randomblob(1000000))`)
		turn(t, s.AllTenants(), 1)
		longest = max(longest, logBytes(t, s))
	}
	if longest > 1500*pageSize {
		t.Errorf("the log grew to %d pages", longest/pageSize)
	}
}

// A reader that stays keeps the log from being used again, waits for nothing
// and makes nobody wait; when it has gone the log is short again.
func TestAReaderThatStaysDelaysNobody(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	db.SetMaxOpenConns(1)
	outboxtest.Enqueue(t, db, events("acme", 50)...)
	reader, err := s.AllTenants().Snapshot(t.Context(), outbox.SnapshotOptions{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, db, `PRAGMA wal_autocheckpoint = 0`)
	must(t, db, `CREATE TABLE bulk (x)`)
	for range 27 {
		must(t, db, `INSERT INTO bulk VALUES (randomblob(1000000))`)
	}
	long := logBytes(t, s)
	if long < 6100*pageSize {
		t.Fatalf("the log has only %d pages", long/pageSize)
	}
	turn(t, s.AllTenants(), 50)
	if page, err := reader.Next(t.Context()); err != nil || page[0].Delivery.Attempts != 0 {
		t.Errorf("the reader sees another state: %+v, %v", page, err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		turn(t, s.AllTenants(), 50)
	}
	if after := logBytes(t, s); after > long+200*pageSize {
		t.Errorf("the log still grows: %d to %d pages", long/pageSize, after/pageSize)
	}
}

// An app that commits between a checkpoint and the next one keeps it from
// reaching the log's end, for ever if it commits all the time. A log that is far too
// long is therefore brought to its end with the app kept out for a moment.
func TestALogBesideABusyAppIsUsedAgain(t *testing.T) {
	var faults outboxtest.Faults
	s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
	db := outboxtest.Producer(t, s.Path())
	db.SetMaxOpenConns(1)
	outboxtest.Enqueue(t, db, events("acme", 1)...)
	must(t, db, `PRAGMA wal_autocheckpoint = 0`)
	must(t, db, `CREATE TABLE bulk (x)`)
	for range 27 {
		must(t, db, `INSERT INTO bulk VALUES (randomblob(1000000))`)
	}
	between := 0
	faults.Before(func(query string, _ func(string) error) {
		if strings.Contains(query, "RESTART") && between == 0 {
			between++
			must(t, db, `INSERT INTO bulk VALUES (1)`)
		}
	})
	turn(t, s.AllTenants(), 1)
	must(t, db, `INSERT INTO bulk VALUES (2)`)
	var busy, frames, moved int
	if err := db.QueryRow(`PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &frames, &moved); err != nil {
		t.Fatal(err)
	}
	if between != 1 || frames > 1000 {
		t.Errorf("%d commits in between, %d pages in the log", between, frames)
	}
}

// A checkpoint that fails has lost nothing: the operation has succeeded.
func TestACheckpointThatFailsIsNoFailure(t *testing.T) {
	var faults outboxtest.Faults
	s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 20)...)
	faults.FailQuery("wal_checkpoint", outboxtest.IOError)
	got, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, 20)
	if err != nil || len(got) != 20 {
		t.Fatal(err)
	}
	if !strings.Contains(faults.Log(), "wal_checkpoint") {
		t.Error("there was no checkpoint")
	}
}
