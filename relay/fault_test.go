package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// exchangeOf is an exchange whose claim fails.
func exchangeOf(claimErr error) func(context.Context, []outbox.Settlement, outbox.ClaimRequest) (outbox.Exchanged, error) {
	return func(_ context.Context, _ []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error) {
		if claim.Limit == 0 {
			return outbox.Exchanged{}, nil
		}
		return outbox.Exchanged{ClaimErr: claimErr}, nil
	}
}

func TestTemporaryFaultsAreRiddenOut(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault error
		long  time.Duration
	}{
		{"busy", &outbox.SQLError{Op: "exchange", Err: outbox.ErrBusyExhausted}, 10 * time.Second},
		{"busy for longer than the lease", &outbox.SQLError{Op: "exchange", Err: outbox.ErrBusyExhausted}, 90 * time.Second},
		{"disk full", codeError(13), 10 * time.Second},
		{"disk full for longer than the lease", codeError(13), 90 * time.Second},
		{"I/O error", codeError(10 | 3<<8), 10 * time.Second},
		{"no entropy for a while", outbox.ErrEntropyUnavailable, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, r *rig) {
				r.broker.silent()
				rows := r.enqueue(t, "orders", 50)
				eventually(t, time.Second, "published", func() bool { return r.broker.publishedRows() == len(rows) })
				r.seam.fail(tc.fault)
				r.broker.answerAll(Result{Class: Accepted, Sent: true})
				more := r.enqueue(t, "orders", 50)
				time.Sleep(tc.long)
				if s := r.relay.Snapshot(); s.Database == "" {
					t.Error("the snapshot says that the database is usable")
				}
				for _, row := range more {
					if len(r.broker.published(row)) > 0 {
						t.Fatal("published what could not be claimed")
					}
				}
				r.broker.up()
				r.seam.fail(nil)
				eventually(t, 40*time.Second, "all delivered", func() bool { return r.count(t, outbox.Delivered) == len(rows)+len(more) })
				for _, row := range append(rows, more...) {
					if n := len(r.broker.published(row)); n != 1 {
						t.Fatalf("row %d published %d times", row, n)
					}
					if d := r.delivery(t, row); d.FailureCode != "" {
						t.Fatalf("row %d: failure %q recorded", row, d.FailureCode)
					}
				}
				if n := len(r.log.lines(t)); n > 12 {
					t.Errorf("%d log lines", n)
				}
				if s := r.relay.Snapshot(); s.Database != "" {
					t.Errorf("the snapshot still says %q", s.Database)
				}
				if busy := r.metric(t, "relay_busy_total"); strings.HasPrefix(tc.name, "busy") != (busy > 0) {
					t.Errorf("relay_busy_total is %v", busy)
				}
			})
		})
	}
}

// A claim needs space that settling does not.
func TestFullDiskKeepsNoFinishedWorkBack(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		r.broker.silent()
		rows := r.enqueue(t, "orders", 50)
		eventually(t, time.Second, "published", func() bool { return r.count(t, outbox.InClaim) == len(rows) })
		r.seam.mu.Lock()
		r.seam.exchange = func(ctx context.Context, b []outbox.Settlement, c outbox.ClaimRequest) (outbox.Exchanged, error) {
			if c.Limit > 0 {
				return outbox.Exchanged{}, codeError(13)
			}
			return r.seam.Outbox.Exchange(ctx, b, c)
		}
		r.seam.mu.Unlock()
		r.enqueue(t, "orders", 50)
		r.broker.answerAll(Result{Class: Accepted, Sent: true})
		eventually(t, 10*time.Second, "finished rows acked", func() bool { return r.count(t, outbox.Delivered) == len(rows) })
	})
}

func TestFinalFaultsEndTheRelay(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault error
	}{
		{"damaged", codeError(11)},
		{"no database any more", codeError(26)},
		{"read-only", codeError(8)},
		{"other schema", &outbox.MigrationMismatchError{Path: "x", Version: 1}},
		{"unknown, for long", errors.New("no such column")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, r *rig) {
				r.enqueue(t, "orders", 1)
				r.seam.fail(tc.fault)
				r.enqueue(t, "orders", 1)
				select {
				case err := <-r.ended:
					r.ended = nil
					if !errors.Is(err, tc.fault) || strings.Count(err.Error(), r.path) != 1 {
						t.Errorf("ended with %v", err)
					}
				case <-time.After(2 * time.Minute):
					t.Error("goes on")
				}
			})
		})
	}
}

func TestReplacedFileEndsTheRelayWhateverItDoes(t *testing.T) {
	for _, tc := range []struct {
		name string
		set  func(r *rig)
	}{
		{"idle", func(*rig) {}},
		{"breaker open", func(r *rig) { r.broker.down() }},
		{"waiting for a locked file", func(r *rig) { r.seam.hang() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				tc.set(r)
				r.enqueue(t, "orders", 10)
				r.start(t)
				time.Sleep(10 * time.Second)
				r.seam.mu.Lock()
				r.seam.same = outbox.ErrFileReplaced
				r.seam.mu.Unlock()
				began := time.Now()
				err := <-r.ended
				r.ended = nil
				if !errors.Is(err, outbox.ErrFileReplaced) || time.Since(began) > 2*time.Second {
					t.Errorf("ended after %v with %v", time.Since(began), err)
				}
			})
		})
	}
}

// A lock held for long is waiting, not hanging.
func TestWaitingForTheWriterSlotIsProgress(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		tx, err := r.app.Begin() // holds the writer slot
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := outbox.Enqueue(t.Context(), tx, r.event("orders")); err != nil {
			t.Fatal(err)
		}
		r.seam.mu.Lock()
		r.seam.exchange = func(ctx context.Context, b []outbox.Settlement, c outbox.ClaimRequest) (outbox.Exchanged, error) {
			return r.seam.Outbox.Exchange(ctx, b, c)
		}
		r.seam.mu.Unlock()
		r.relay.Reload(Settings{}) // something to do
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if age := time.Since(r.relay.Snapshot().Progress); age > 200*time.Millisecond {
				t.Fatalf("no progress for %v", age)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "delivered", func() bool { return r.count(t, outbox.Delivered) == 1 })
	})
}

func TestLoopThatHangsMakesNoProgress(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.seam.mu.Lock()
		r.seam.exchange = func(context.Context, []outbox.Settlement, outbox.ClaimRequest) (outbox.Exchanged, error) {
			<-release
			return outbox.Exchanged{}, nil
		}
		r.seam.mu.Unlock()
		r.enqueue(t, "orders", 1)
		time.Sleep(30 * time.Second)
		if age := time.Since(r.relay.Snapshot().Progress); age < 20*time.Second {
			t.Errorf("progress %v ago", age)
		}
		close(release)
	})
}
