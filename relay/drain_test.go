package relay

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-relay/relay/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frozenBroker is a publisher whose Publish does not return, as when a peer reads
// nothing more.
type frozenBroker struct {
	*fakeBroker
	thaw chan struct{}
}

func (b *frozenBroker) Publish(ctx context.Context, m *Message, done chan<- Result) error {
	<-b.thaw
	return b.fakeBroker.Publish(ctx, m, done)
}

func TestDrainEndsInTimeWhateverItWaitsFor(t *testing.T) {
	const drain = 4 * time.Second
	for _, tc := range []struct {
		name string
		set  func(t *testing.T, r *rig) // before the relay starts
		then func(t *testing.T, r *rig) // before it stops
		took time.Duration              // at most; 0: a moment
		left int                        // rows left claimed
		// rows by what was recorded as their failure, of 100
		delivered, clean, ambiguous, unanswered int
	}{
		{name: "idle", delivered: 100,
			then: func(t *testing.T, r *rig) {
				eventually(t, time.Second, "delivered", func() bool { return r.count(t, outbox.Delivered) == 100 })
			}},
		{name: "breaker open", clean: 100,
			set: func(_ *testing.T, r *rig) { r.broker.down() }},
		{name: "answers come late", delivered: 100, took: 2 * time.Second,
			set: func(_ *testing.T, r *rig) {
				r.broker.set(func(b *fakeBroker) {
					b.behave = func(*Message) answer { a := stored; a.after = 2 * time.Second; return a }
				})
			}},
		{name: "no answer comes", ambiguous: 100, took: drain,
			set: func(_ *testing.T, r *rig) { r.broker.silent() }},
		{name: "connection breaks while draining", unanswered: 100, took: 2 * time.Second,
			set: func(_ *testing.T, r *rig) {
				r.broker.silent()
				time.AfterFunc(2*time.Second, func() {
					r.broker.down()
					r.broker.answerAll(Result{Class: Unavailable, Code: CodeUnanswered, Sent: true})
				})
			}},
		{name: "publisher frozen", ambiguous: 1, clean: 99, took: drain + 100*time.Millisecond,
			set: func(t *testing.T, r *rig) {
				frozen := &frozenBroker{r.broker, make(chan struct{})}
				t.Cleanup(func() { close(frozen.thaw) })
				r.o.Publisher = frozen
			}},
		{name: "database locked throughout", left: 100, took: drain,
			then: func(t *testing.T, r *rig) {
				r.seam.fail(&outbox.SQLError{Op: "exchange", Err: outbox.ErrBusyExhausted})
			}},
		{name: "database locked, and every turn waits", left: 100, took: drain,
			then: func(t *testing.T, r *rig) { r.seam.hang() }},
		{name: "database locked for a while", delivered: 100, took: 3 * time.Second,
			then: func(t *testing.T, r *rig) {
				r.seam.fail(&outbox.SQLError{Op: "exchange", Err: outbox.ErrBusyExhausted})
				time.AfterFunc(2*time.Second, func() { r.seam.fail(nil) })
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Drain = drain })
				if tc.set != nil {
					tc.set(t, r)
				}
				var err error
				if r.relay, err = New(r.o); err != nil {
					t.Fatal(err)
				}
				r.enqueue(t, "orders", 100)
				if tc.left > 0 {
					r.broker.silent()
				}
				r.start(t)
				time.Sleep(100 * time.Millisecond)
				if tc.then != nil {
					tc.then(t, r)
				}
				if tc.left > 0 {
					r.broker.answerAll(Result{Class: Accepted, Sent: true})
				}
				began := time.Now()
				err = r.stop(t)
				if took := time.Since(began); took > tc.took+50*time.Millisecond {
					t.Errorf("took %v", took)
				}
				var left *DrainError
				switch {
				case tc.left == 0 && err != nil:
					t.Error(err)
				case tc.left > 0 && (!errors.As(err, &left) || left.Rows != tc.left):
					t.Errorf("ended with %v", err)
				}
				if n := r.count(t, outbox.InClaim); n != tc.left {
					t.Errorf("%d rows left claimed", n)
				}
				r.expect(t, tc.delivered, tc.clean, tc.ambiguous, tc.unanswered)
			})
		})
	}
}

// expect counts delivered rows, and pending ones by what failure they have.
func (r *rig) expect(t *testing.T, delivered, clean, ambiguous, unanswered int) {
	t.Helper()
	got := make(map[string]int)
	for row := int64(1); row <= int64(r.next); row++ {
		d := r.delivery(t, row)
		if d.State == outbox.Pending {
			got[d.FailureCode]++
		}
		if d.Attempts > 1 {
			t.Errorf("row %d has %d attempts", row, d.Attempts)
		}
	}
	want := map[string]int{"": clean, string(CodeAmbiguousOnStop): ambiguous, string(CodeUnanswered): unanswered}
	for code, n := range want {
		if got[code] != n {
			t.Errorf("%d pending rows with failure %q, want %d", got[code], code, n)
		}
	}
	if n := r.count(t, outbox.Delivered); n != delivered {
		t.Errorf("%d rows delivered, want %d", n, delivered)
	}
}

func TestStopInFullFlowRecordsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.enqueue(t, "orders", 5000)
		for range 10 {
			var err error
			if r.relay, err = New(r.o); err != nil {
				t.Fatal(err)
			}
			r.start(t)
			time.Sleep(time.Millisecond)
			if err := r.stop(t); err != nil {
				t.Fatal(err)
			}
			if n := r.count(t, outbox.InClaim); n != 0 {
				t.Fatalf("%d rows left claimed", n)
			}
		}
		var err error
		if r.relay, err = New(r.o); err != nil {
			t.Fatal(err)
		}
		r.start(t)
		eventually(t, time.Minute, "all delivered", func() bool { return r.count(t, outbox.Delivered) == 5000 })
		for row, n := range r.broker.copies {
			if n != 1 {
				t.Fatalf("row %d left %d times", row, n)
			}
		}
		list, err := r.store.AllTenants().List(t.Context(), outbox.Filter{State: outbox.Quarantined}, 1)
		if err != nil || len(list) != 0 {
			t.Error(list, err)
		}
	})
}
