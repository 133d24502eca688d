package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func TestBusyIsRetriedFairlyAndThenExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		s := outboxtest.NewStore(t, func(o *outbox.Options) {
			o.BusyTimeout, o.BusyRetries = 2*time.Second, 2
			o.OnBusy = func(waited time.Duration) { waits = append(waits, waited) }
		})
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", 1)...)
		tx, err := outbox.Begin(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		_, err = s.AllTenants().Claim(t.Context(), "w", time.Minute, 1)
		took := time.Since(started)
		if !errors.Is(err, outbox.ErrBusyExhausted) || outbox.FaultOf(err) != outbox.FaultBusy || !strings.Contains(err.Error(), "3 tries") {
			t.Error(err)
		}
		var coded interface{ Code() int }
		if !errors.As(err, &coded) || coded.Code()&0xff != 5 {
			t.Errorf("the driver's error is not inside: %v", err)
		}
		if took < 6*time.Second || took > 6100*time.Millisecond {
			t.Errorf("waited %v for three tries of 2 s", took)
		}
		for i := 1; i < len(waits); i++ {
			if gap := waits[i] - waits[i-1]; gap > 20*time.Millisecond {
				t.Fatalf("a wait of %v after %v is not fair", gap, waits[i-1])
			}
		}
		if early := waits[20]; early > 20*time.Millisecond {
			t.Errorf("20 tries took %v", early)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if c := claim(t, s.AllTenants(), 1); len(c) != 1 || c[0].Attempts != 1 {
			t.Errorf("%+v", c)
		}
	})
}

func TestBusyEndsWhenTheSlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewStore(t)
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", 1)...)
		tx, err := outbox.Begin(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(12 * time.Second) // within the third try
			tx.Rollback()
		}()
		started := time.Now()
		if c := claim(t, s.AllTenants(), 1); len(c) != 1 {
			t.Errorf("%+v", c)
		}
		if took := time.Since(started); took < 12*time.Second || took > 12*time.Second+20*time.Millisecond {
			t.Errorf("claimed after %v", took)
		}
	})
}

func TestBusyWithoutRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewStore(t, func(o *outbox.Options) { o.BusyRetries = -1 })
		tx, err := outbox.Begin(t.Context(), outboxtest.Producer(t, s.Path()))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		started := time.Now()
		if _, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, 1); !errors.Is(err, outbox.ErrBusyExhausted) {
			t.Error(err)
		}
		if took := time.Since(started); took < 5*time.Second || took > 5020*time.Millisecond {
			t.Errorf("waited %v, the default is 5 s", took)
		}
	})
}

func TestACancelledWaitEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewStore(t)
		tx, err := outbox.Begin(t.Context(), outboxtest.Producer(t, s.Path()))
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started := time.Now()
		if _, err := s.AllTenants().Claim(ctx, "w", time.Minute, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(started); took > time.Second+20*time.Millisecond {
			t.Errorf("ended after %v", took)
		}
		// Another caller waits for the same connection, and gives up too.
		go s.AllTenants().Claim(t.Context(), "w", time.Minute, 1)
		time.Sleep(time.Millisecond)
		second, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.AllTenants().Claim(second, "w", time.Minute, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// In rollback-journal mode a reader keeps a writer from committing. The commit
// is tried again, then taken back, and nothing has changed.
func TestBusyAtCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults outboxtest.Faults
		s := outboxtest.NewStore(t, func(o *outbox.Options) {
			o.Driver, o.BusyTimeout, o.BusyRetries = faults.Connector, time.Second, 1
		})
		db := outboxtest.Producer(t, s.Path())
		outboxtest.Enqueue(t, db, events("acme", 2)...)
		before := dump(t, db)
		faults.FailQuery("COMMIT", outboxtest.Busy)
		started := time.Now()
		if _, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, 2); !errors.Is(err, outbox.ErrBusyExhausted) {
			t.Error(err)
		}
		if took := time.Since(started); took < 2*time.Second {
			t.Errorf("gave up after %v", took)
		}
		if after := dump(t, db); after != before {
			t.Errorf("changed:\n%s%s", before, after)
		}
		go func() {
			time.Sleep(500 * time.Millisecond)
			faults.Disarm()
		}()
		faults.FailQuery("COMMIT", outboxtest.Busy)
		if c := claim(t, s.AllTenants(), 2); len(c) != 2 || c[0].Attempts != 1 {
			t.Errorf("%+v", c)
		}
		if n := strings.Count(faults.Log(), "BEGIN"); n > 2 { // prepared, executed
			t.Errorf("a commit that was busy for half a second was begun again:\n%s", faults.Log())
		}
	})
}
