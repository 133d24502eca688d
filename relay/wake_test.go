package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// fakeWatcher gives the events that a test sends.
type fakeWatcher chan struct{}

func (w fakeWatcher) Events() <-chan struct{} { return w }
func (w fakeWatcher) Close() error            { return nil }

// countingCommits counts how often the commit counter is read.
type countingCommits struct {
	Commits
	reads *atomic.Int64
	err   func() error
}

func (c countingCommits) Version(ctx context.Context) (int64, error) {
	c.reads.Add(1)
	if c.err != nil {
		if err := c.err(); err != nil {
			return 0, err
		}
	}
	return c.Commits.Version(ctx)
}

type countingOutbox struct {
	*seam
	reads atomic.Int64
	looks atomic.Int64
	err   func() error // of reading the counter
	opens atomic.Int64
}

func (o *countingOutbox) Commits(ctx context.Context) (Commits, error) {
	o.opens.Add(1)
	c, err := o.seam.Commits(ctx)
	return countingCommits{c, &o.reads, o.err}, err
}

func (o *countingOutbox) Due(ctx context.Context) (outbox.Due, error) {
	o.looks.Add(1)
	return o.seam.Due(ctx)
}

// watched makes a rig whose watcher and looks a test controls, and starts it.
func watched(t *testing.T, poll time.Duration) (*rig, fakeWatcher, *countingOutbox) {
	t.Helper()
	r := newRig(t, nil)
	w, o := make(fakeWatcher), &countingOutbox{seam: r.seam}
	r.o.Outbox, r.o.Poll = o, poll
	r.o.Watch = func(string) (Watcher, error) { return w, nil }
	var err error
	if r.relay, err = New(r.o); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	time.Sleep(10 * time.Millisecond)
	return r, w, o
}

func TestIdleRelayTakesNoWriterSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, o := watched(t, 500*time.Millisecond)
		r.exec(t, `CREATE TABLE app (n INTEGER)`)
		before, _ := r.seam.counts()
		looks, reads := o.looks.Load(), o.reads.Load()
		time.Sleep(time.Hour)
		if after, _ := r.seam.counts(); after != before {
			t.Errorf("%d turns in an idle hour", after-before)
		}
		if n := o.looks.Load() - looks; n > 2*3600+10 {
			t.Errorf("%d looks in an idle hour", n)
		}
		if n := o.reads.Load() - reads; n > 2*3600+10 {
			t.Errorf("%d readings of the commit counter in an idle hour", n)
		}
		// Commits that are none of its business wake it, and no more.
		for range 100 {
			r.exec(t, `INSERT INTO app VALUES (1)`)
			w <- struct{}{}
			time.Sleep(20 * time.Millisecond)
		}
		if after, _ := r.seam.counts(); after != before {
			t.Errorf("%d turns for another table's commits", after-before)
		}
	})
}

// The event of a write comes before the commit is visible, by as much as a sync
// takes.
func TestCommitIsNoticedHoweverLongAfterItsEvent(t *testing.T) {
	for _, delay := range []time.Duration{
		0, 300 * time.Microsecond, 2 * time.Millisecond, 8 * time.Millisecond, 40 * time.Millisecond, 250 * time.Millisecond,
	} {
		t.Run(delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w, _ := watched(t, time.Hour)
				for range 5 {
					time.Sleep(time.Minute)
					w <- struct{}{}
					time.Sleep(delay)
					row := r.enqueue(t, "orders", 1)[0]
					committed := time.Now()
					eventually(t, max(2*delay, 10*time.Millisecond), "published", func() bool { return len(r.broker.published(row)) == 1 })
					if lag := r.broker.published(row)[0].Sub(committed); lag > max(delay, 10*time.Millisecond) {
						t.Errorf("published %v after the commit", lag)
					}
				}
			})
		})
	}
}

// Two writes can make one event. If the first one's commit is noticed, the second's
// must not be forgotten with it.
func TestSecondCommitOfAnEventIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, _ := watched(t, time.Hour)
		first := r.enqueue(t, "orders", 1)[0]
		w <- struct{}{}
		time.Sleep(20 * time.Millisecond)
		if n := len(r.broker.published(first)); n != 1 || r.delivery(t, first).State != outbox.Delivered {
			t.Fatalf("first row published %d times", n)
		}
		second := r.enqueue(t, "orders", 1)[0]
		eventually(t, 50*time.Millisecond, "second published", func() bool { return len(r.broker.published(second)) == 1 })
	})
}

func TestLostEventsCostNoMoreThanThePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := watched(t, 300*time.Millisecond)
		for range 5 {
			time.Sleep(10 * time.Second)
			row := r.enqueue(t, "orders", 1)[0]
			eventually(t, 320*time.Millisecond, "published", func() bool { return len(r.broker.published(row)) == 1 })
		}
	})
}

func TestOwnCommitsDoNotKeepTheRelayAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w, o := watched(t, time.Hour)
		// Every turn touches the file, and so makes an event.
		r.seam.mu.Lock()
		r.seam.exchange = func(ctx context.Context, b []outbox.Settlement, c outbox.ClaimRequest) (outbox.Exchanged, error) {
			go func() { w <- struct{}{} }()
			return r.seam.Outbox.Exchange(ctx, b, c)
		}
		r.seam.mu.Unlock()
		r.enqueue(t, "orders", 1)
		w <- struct{}{}
		time.Sleep(time.Second)
		if n := r.count(t, outbox.Delivered); n != 1 {
			t.Fatalf("%d rows delivered", n)
		}
		reads, looks := o.reads.Load(), o.looks.Load()
		if reads > 40 || looks > 10 {
			t.Errorf("%d readings and %d looks for one row", reads, looks)
		}
		time.Sleep(time.Minute)
		if o.reads.Load() != reads || o.looks.Load() != looks {
			t.Errorf("%d readings and %d looks in an idle minute", o.reads.Load()-reads, o.looks.Load()-looks)
		}
	})
}

func TestRowsAreTakenWhenTheyComeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) {
			o.Poll = time.Hour
			o.Backoff = Backoff{Initial: time.Minute, Max: time.Hour, Multiplier: 1}
		})
		r.broker.set(func(b *fakeBroker) {
			b.behave = func(m *Message) answer {
				if len(b.times[m.Row]) == 0 {
					return answered(Failed, CodePublishTimeout)
				}
				return stored
			}
		})
		row := r.enqueue(t, "orders", 1)[0]
		r.start(t)
		eventually(t, 2*time.Minute, "delivered", func() bool { return r.delivery(t, row).State == outbox.Delivered })
		times := r.broker.published(row)
		if gap := times[1].Sub(times[0]); gap < time.Minute || gap > time.Minute+dueGroup+50*time.Millisecond {
			t.Errorf("tried again after %v", gap)
		}
	})
}

func TestClockThatIsSetStallsNothing(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.broker.silent()
				rows := r.enqueue(t, "orders", 20)
				r.start(t)
				eventually(t, time.Second, "published", func() bool { return r.broker.publishedRows() == len(rows) })
				r.clock.Store(int64(step))
				r.broker.answerAll(Result{Class: Accepted, Sent: true})
				r.broker.up()
				more := r.enqueue(t, "orders", 20)
				// Set back by more than they are ahead, rows are due in the future.
				eventually(t, 2*time.Hour, "all delivered", func() bool {
					return r.count(t, outbox.Delivered) == len(rows)+len(more)
				})
				for _, row := range rows {
					if n := len(r.broker.published(row)); n != 1 {
						t.Fatalf("row %d published %d times", row, n)
					}
				}
			})
		})
	}
}

func TestCommitCounterThatFailsIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		var failing atomic.Bool
		o := &countingOutbox{seam: r.seam, err: func() error {
			if failing.Load() {
				return errors.New("lost")
			}
			return nil
		}}
		r.o.Outbox = o
		var err error
		if r.relay, err = New(r.o); err != nil {
			t.Fatal(err)
		}
		r.start(t)
		time.Sleep(time.Minute)
		failing.Store(true)
		row := r.enqueue(t, "orders", 1)[0]
		eventually(t, time.Second, "delivered by polling", func() bool { return r.delivery(t, row).State == outbox.Delivered })
		time.Sleep(time.Minute)
		if n := o.opens.Load(); n > 150 {
			t.Errorf("opened %d times", n)
		}
		failing.Store(false)
		opens := o.opens.Load()
		time.Sleep(time.Minute)
		if n := o.opens.Load() - opens; n != 1 {
			t.Errorf("opened %d times after it worked again", n)
		}
	})
}

// With the real file watch and real time, and a poll far too slow to help.
func TestNoWakeUpIsLost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Watch, o.Poll = nil, time.Hour })
	r.start(t)
	n := 300
	if testing.Short() {
		n = 60
	}
	for i := range n {
		time.Sleep(rand.N(8 * time.Millisecond)) // in no step with the relay's own turns
		row := r.enqueue(t, "orders", 1)[0]
		if i%10 == 0 {
			eventually(t, 5*time.Second, "published", func() bool { return len(r.broker.published(row)) == 1 })
		}
	}
	eventually(t, 5*time.Second, "all published", func() bool { return r.broker.storedRows() == n })
}

func TestWatcherTellsOfTheFilesItShould(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a?b #%.db")
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch(path)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	w, err := watchFile(link)
	if err != nil {
		t.Skipf("files cannot be watched here: %v", err)
	}
	defer w.Close()
	// An event for a foreign file would come before that for ours.
	settle := func() {
		for {
			select {
			case <-w.Events():
			case <-time.After(100 * time.Millisecond):
				return
			}
		}
	}
	for _, suffix := range []string{"", "-wal", "-journal"} {
		touch(path + suffix)
		select {
		case <-w.Events():
		case <-time.After(5 * time.Second):
			t.Errorf("no event for %q", suffix)
		}
		settle()
	}
	touch(filepath.Join(dir, "other.db-wal"))
	select {
	case <-w.Events():
		t.Error("an event for a foreign file")
	case <-time.After(100 * time.Millisecond):
	}
}
