package outbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// childFile makes a test's process a worker on that file.
const childFile = "OUTBOX_TEST_FILE"

// startChildren runs this test in n more processes, each with path in its
// environment, and returns each one's lines when all have ended.
func startChildren(t *testing.T, n int, path string) [][]string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lines := make([][]string, n)
	var wg sync.WaitGroup
	for i := range n {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), childFile+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for scan := bufio.NewScanner(out); scan.Scan(); {
				lines[i] = append(lines[i], scan.Text())
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("child %d: %v\n%s", i, err, strings.Join(lines[i], "\n"))
			}
		})
	}
	wg.Wait()
	return lines
}

// Processes that claim from one file never get the same row, and every row is
// got by one of them.
func TestClaimsOfProcessesNeverOverlap(t *testing.T) {
	const rows, workers = 2000, 3
	if path := os.Getenv(childFile); path != "" {
		claimAll(t, path)
		return
	}
	path := outboxtest.NewFile(t)
	db := outboxtest.Producer(t, path)
	outboxtest.Enqueue(t, db, events("acme", rows)...)
	owners := map[string]int{}
	for i, lines := range startChildren(t, workers, path) {
		for _, line := range lines {
			row, ok := strings.CutPrefix(line, "claimed ")
			if !ok {
				continue
			}
			if other, taken := owners[row]; taken {
				t.Errorf("row %s was claimed by %d and by %d", row, other, i)
			}
			owners[row] = i
		}
	}
	if len(owners) != rows {
		t.Errorf("%d of %d rows claimed", len(owners), rows)
	}
	if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE state = 'delivered' AND attempts = 1`); n != rows {
		t.Errorf("%d of %d rows delivered at their first attempt", n, rows)
	}
}

// claimAll is a worker: it prints the rows it claims, and acknowledges them.
func claimAll(t *testing.T, path string) {
	s, err := outbox.Open(t.Context(), path, outbox.Options{BusyTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var settle []outbox.Settlement
	for {
		x, err := s.AllTenants().Exchange(t.Context(), settle, outbox.ClaimRequest{Worker: fmt.Sprint(os.Getpid()), Lease: time.Minute, Limit: 37})
		if err != nil || x.ClaimErr != nil {
			t.Fatal(err, x.ClaimErr)
		}
		for _, done := range x.Settled {
			if done.Err != nil {
				t.Error(done)
			}
		}
		if len(x.Claimed) == 0 {
			return
		}
		settle = settle[:0]
		for _, c := range x.Claimed {
			fmt.Println("claimed", c.Row)
			settle = append(settle, settlement(c, outbox.Ack))
		}
	}
}

// Two stores claim at the same moment, again and again: all rows, each once.
func TestClaimsOfConnectionsNeverOverlap(t *testing.T) {
	path := outboxtest.NewFile(t)
	db := outboxtest.Producer(t, path)
	outboxtest.Enqueue(t, db, events("acme", 200)...)
	stores := []*outbox.Store{outboxtest.OpenStore(t, path), outboxtest.OpenStore(t, path), outboxtest.OpenStore(t, path)}
	seen := map[int64]outbox.Token{}
	for len(seen) < 200 {
		got := make([][]outbox.Claimed, len(stores))
		var barrier, done sync.WaitGroup
		barrier.Add(len(stores))
		for i, s := range stores {
			done.Go(func() {
				barrier.Done()
				barrier.Wait()
				var err error
				if got[i], err = s.AllTenants().Claim(t.Context(), "w", time.Minute, 7); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		before := len(seen)
		for _, batch := range got {
			for _, c := range batch {
				if _, taken := seen[c.Row]; taken {
					t.Fatalf("row %d was claimed twice", c.Row)
				}
				seen[c.Row] = c.Token
			}
		}
		if len(seen) == before {
			t.Fatalf("only %d rows claimed", len(seen))
		}
	}
}

// A reclaimed row belongs to its new owner alone: every settlement of the old one
// changes nothing.
func TestALateWorkerChangesNothing(t *testing.T) {
	c := &clock{noon}
	path := outboxtest.NewFile(t)
	db := outboxtest.Producer(t, path)
	outboxtest.Enqueue(t, db, events("acme", 5)...)
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z'`)
	old, fresh := outboxtest.OpenStore(t, path, c.option).AllTenants(), outboxtest.OpenStore(t, path, c.option).AllTenants()
	late := claim(t, old, 5)
	c.now = noon.Add(time.Minute)
	current := claim(t, fresh, 5)
	if len(current) != 5 || current[0].Token == late[0].Token || !current[0].Reclaimed {
		t.Fatalf("%+v", current)
	}
	before := dump(t, db)
	var batch []outbox.Settlement
	for i, claimed := range late {
		batch = append(batch, settlement(claimed, actions[i]))
	}
	x, err := old.Exchange(t.Context(), batch, outbox.ClaimRequest{Worker: "late", Lease: time.Minute, Limit: 10})
	if err != nil || len(x.Claimed) != 0 {
		t.Fatal(x, err)
	}
	for _, done := range x.Settled {
		if done.Err != outbox.ErrLostClaim {
			t.Errorf("%+v", done)
		}
	}
	if after := dump(t, db); after != before {
		t.Errorf("changed:\n%s%s", before, after)
	}
}

// A context that ends in the middle of a transaction takes all of it back, and
// the store goes on.
func TestAContextThatEndsInTheMiddle(t *testing.T) {
	for _, when := range []string{"strftime", "available_at <= ?1", "json_each", "SET state = 'claimed'", "RELEASE claim", "SET state = 'delivered'"} {
		t.Run(when, func(t *testing.T) {
			faults, h, db, claimed := faulty(t)
			before := dump(t, db)
			ctx, cancel := context.WithCancel(t.Context())
			reached := false
			faults.Before(func(query string, _ func(string) error) {
				if strings.Contains(query, when) {
					reached = true
					cancel()
				}
			})
			batch := []outbox.Settlement{settlement(claimed[0], outbox.Ack), settlement(claimed[1], outbox.Ack)}
			request := outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 10}
			_, err := h.Exchange(ctx, batch, request)
			faults.Before(nil)
			if !reached || !errors.Is(err, context.Canceled) {
				t.Fatalf("reached %v: %v", reached, err)
			}
			if after := dump(t, db); after != before {
				t.Errorf("changed:\n%s%s", before, after)
			}
			x, err := h.Exchange(t.Context(), batch, request)
			if err != nil || x.ClaimErr != nil || len(x.Claimed) == 0 || x.Claimed[0].Attempts != 1 || x.Settled[1].Err != nil {
				t.Errorf("then %+v, %v", x, err)
			}
		})
	}
}

// One store serves many goroutines.
func TestOneStoreManyGoroutines(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 60)...)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 5 {
				got, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, 2)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.AllTenants().Due(t.Context()); err != nil {
					t.Error(err)
				}
				for _, c := range got {
					if done, err := s.AllTenants().Settle(t.Context(), []outbox.Settlement{settlement(c, outbox.Ack)}); err != nil || done[0].Err != nil {
						t.Error(done, err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE state = 'delivered'`); n != 60 {
		t.Errorf("%d delivered", n)
	}
}
