package outbox_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// Processes that enqueue the same identities at the same time: of equal events one
// is new and the others are replays, of different ones the others are conflicts.
func TestProcessesThatEnqueueOneIdentity(t *testing.T) {
	const processes, identities = 3, 30
	if path := os.Getenv(childFile); path != "" {
		enqueueSame(t, path, processes, identities)
		return
	}
	path := outboxtest.NewFile(t)
	db := outboxtest.Producer(t, path)
	must(t, db, `CREATE TABLE ready (pid INTEGER PRIMARY KEY)`)
	tally := map[string]int{}
	for _, lines := range startChildren(t, processes, path) {
		for _, line := range lines {
			if outcome, ok := strings.CutPrefix(line, "outcome "); ok {
				tally[outcome]++
			}
		}
	}
	want := map[string]int{"equal new": identities, "equal replay": 2 * identities, "different new": identities, "different conflict": 2 * identities}
	if fmt.Sprint(tally) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", tally, want)
	}
	if n := count(t, db, `SELECT count(*) FROM dovecote_events JOIN dovecote_deliveries ON row_id = event_row_id`); n != 2*identities {
		t.Errorf("%d rows", n)
	}
	outboxtest.Check(t, path)
}

// enqueueSame waits for the other processes, and enqueues what they enqueue.
func enqueueSame(t *testing.T, path string, processes, identities int) {
	db := outboxtest.Producer(t, path)
	must(t, db, `INSERT INTO ready VALUES (?)`, os.Getpid())
	for deadline := time.Now().Add(time.Minute); count(t, db, `SELECT count(*) FROM ready`) < processes; {
		if time.Now().After(deadline) {
			t.Fatal("the other processes did not start")
		}
	}
	for i := range identities {
		for _, kind := range []string{"equal", "different"} {
			e := event("acme", fmt.Sprint(kind, i))
			if kind == "different" {
				e.Subject = fmt.Sprint(os.Getpid())
			}
			tx, err := outbox.Begin(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			r, err := outbox.Enqueue(t.Context(), tx, e)
			outcome := map[outbox.Outcome]string{outbox.Enqueued: "new", outbox.AlreadyEnqueued: "replay"}[r.Outcome]
			if errors.As(err, new(*outbox.IdempotencyConflictError)) {
				outcome, err = "conflict", nil
			}
			if err := errors.Join(err, tx.Commit()); err != nil {
				t.Fatal(err)
			}
			fmt.Println("outcome", kind, outcome)
		}
	}
}
