package outbox_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// faultCase is an operation on twelve claimed and twelve pending rows.
type faultCase struct {
	name string
	run  func(t *testing.T, h *outbox.Handle, claimed []outbox.Claimed) error
}

var faultCases = []faultCase{
	{"claim", func(t *testing.T, h *outbox.Handle, _ []outbox.Claimed) error {
		_, err := h.Claim(t.Context(), "w2", time.Minute, 100)
		return err
	}},
	{"claim few", func(t *testing.T, h *outbox.Handle, _ []outbox.Claimed) error {
		_, err := h.Claim(t.Context(), "w2", time.Minute, 3)
		return err
	}},
	{"acknowledge", func(t *testing.T, h *outbox.Handle, claimed []outbox.Claimed) error {
		var batch []outbox.Settlement
		for _, c := range claimed {
			batch = append(batch, settlement(c, outbox.Ack))
		}
		_, err := h.Settle(t.Context(), batch)
		return err
	}},
	{"acknowledge with one lost", func(t *testing.T, h *outbox.Handle, claimed []outbox.Claimed) error {
		var batch []outbox.Settlement
		for _, c := range claimed {
			batch = append(batch, settlement(c, outbox.Ack))
		}
		batch[5].Token[0]++
		_, err := h.Settle(t.Context(), batch)
		return err
	}},
	{"settle", func(t *testing.T, h *outbox.Handle, claimed []outbox.Claimed) error {
		batch := []outbox.Settlement{settlement(claimed[0], outbox.Ack), settlement(claimed[1], outbox.Retry), settlement(claimed[2], outbox.Quarantine)}
		_, err := h.Settle(t.Context(), batch)
		return err
	}},
	{"renew and release", func(t *testing.T, h *outbox.Handle, claimed []outbox.Claimed) error {
		lost := settlement(claimed[2], outbox.Ack)
		lost.Token[0]++
		batch := []outbox.Settlement{settlement(claimed[0], outbox.Renew), settlement(claimed[1], outbox.Release), lost}
		_, err := h.Settle(t.Context(), batch)
		return err
	}},
	{"exchange", func(t *testing.T, h *outbox.Handle, claimed []outbox.Claimed) error {
		x, err := h.Exchange(t.Context(), []outbox.Settlement{settlement(claimed[0], outbox.Ack)},
			outbox.ClaimRequest{Worker: "w2", Lease: time.Minute, Limit: 10})
		if err == nil && x.ClaimErr != nil {
			// Settled, and the claim taken back: a state of its own.
			return &claimTakenBack{x.ClaimErr}
		}
		return err
	}},
	{"set aside", func(t *testing.T, h *outbox.Handle, _ []outbox.Claimed) error {
		_, err := h.SetAside(t.Context(), []outbox.BadRow{{Row: 13, Code: "undecodable", Err: errors.New("x")}, {Row: 14, Code: "undecodable"}})
		return err
	}},
}

type claimTakenBack struct{ err error }

func (e *claimTakenBack) Error() string { return "claim: " + e.err.Error() }
func (e *claimTakenBack) Unwrap() error { return e.err }

// faulty is a store on rows 1..12 claimed and 13..24 pending, whose next steps can
// fail.
func faulty(t *testing.T) (*outboxtest.Faults, *outbox.Handle, *sql.DB, []outbox.Claimed) {
	faults := new(outboxtest.Faults)
	s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 24)...)
	h := s.AllTenants()
	return faults, h, db, claim(t, h, 12)
}

// Every operation fails at its first step, its second, and so on, until one run
// gets through. What failed has changed nothing, and goes through when tried again.
func TestEachStepFailsOnce(t *testing.T) {
	codes := map[string]int{"io": outboxtest.IOError, "full": outboxtest.Full}
	for _, fc := range faultCases {
		for name, code := range codes {
			for _, when := range []string{"before", "after"} {
				if testing.Short() && (name == "io") != (when == "before") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", fc.name, name, when), func(t *testing.T) {
					for n := 1; ; n++ {
						if n > 400 {
							t.Fatal("never gets through")
						}
						if failStep(t, fc, n, code, when == "after") {
							break
						}
						if testing.Short() && n > 8 {
							n += 6
						}
					}
				})
			}
		}
	}
}

// failStep fails step n of the operation, and reports whether it got through
// without reaching it.
func failStep(t *testing.T, fc faultCase, n, code int, after bool) bool {
	t.Helper()
	faults, h, db, claimed := faulty(t)
	before := dump(t, db)
	if after {
		faults.FailAfter(n, code)
	} else {
		faults.FailAt(n, code)
	}
	err := fc.run(t, h, claimed)
	log := faults.Log()
	if taken := faults.Disarm(); taken < n {
		t.Logf("%d steps", taken)
		if err != nil {
			t.Fatalf("no fault, and yet %v", err)
		}
		return true
	}
	lines := strings.Split(log, "\n")
	failed := lines[n-1]
	committed := after && strings.HasSuffix(failed, "exec COMMIT")
	changed := dump(t, db) != before
	takenBack := errors.As(err, new(*claimTakenBack))
	// What reading ahead cannot do, the claim does itself.
	ahead := fc.name == "exchange" && !strings.Contains(strings.Join(lines[:n], "\n"), "BEGIN IMMEDIATE")
	switch {
	case err == nil && !ahead && !strings.Contains(failed, "ROLLBACK") && !strings.Contains(failed, "next") && !strings.Contains(failed, "wal_checkpoint"):
		t.Fatalf("step %q failed, and the operation did not", failed)
	case err != nil && outbox.FaultOf(err) == outbox.FaultOther:
		t.Fatalf("step %q: the driver's code is lost: %v", failed, err)
	case changed != (committed || takenBack || err == nil):
		t.Fatalf("step %q: changed %v\n%s", failed, changed, log)
	}
	if committed || takenBack || err == nil {
		return false
	}
	if err := fc.run(t, h, claimed); err != nil {
		t.Fatalf("step %q, then: %v", failed, err)
	}
	if worst := count(t, db, `SELECT max(attempts) FROM dovecote_deliveries`); worst != 1 {
		t.Fatalf("step %q: attempts %d", failed, worst)
	}
	return false
}

// A busy database at any step makes the operation start again, once.
func TestEachStepIsBusyOnce(t *testing.T) {
	for _, fc := range faultCases {
		for i, code := range []int{outboxtest.Busy, outboxtest.BusyRecovery, outboxtest.BusySnapshot, outboxtest.BusyTimeout, 6} {
			t.Run(fmt.Sprintf("%s/%d", fc.name, code), func(t *testing.T) {
				for n := 1 + i; ; n++ {
					faults, h, db, claimed := faulty(t)
					before := dump(t, db)
					faults.FailAt(n, code)
					if err := fc.run(t, h, claimed); err != nil {
						t.Fatalf("step %d: %v\n%s", n, err, faults.Log())
					}
					if worst := count(t, db, `SELECT max(attempts) FROM dovecote_deliveries`); worst != 1 {
						t.Fatalf("step %d: attempts %d", n, worst)
					}
					if dump(t, db) == before {
						t.Fatalf("step %d: nothing changed", n)
					}
					if faults.Disarm() < n {
						break
					}
					if testing.Short() {
						n += 10
					}
				}
			})
		}
	}
}

// Opening fails at its first step, its second, and so on, and leaves a file
// that opens.
func TestEachStepOfOpenFailsOnce(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		for n := 1; ; n++ {
			path := outboxtest.NewFile(t)
			faults := new(outboxtest.Faults)
			o := outbox.Options{Driver: faults.Connector, ReadOnly: readOnly}
			faults.FailAt(n, outboxtest.IOError)
			s, err := outbox.Open(t.Context(), path, o)
			log := strings.Split(faults.Log(), "\n")
			through := faults.Disarm() < n
			if err == nil {
				s.Close()
				if !through && !strings.Contains(log[n-1], "ROLLBACK") {
					t.Fatalf("read-only %v: step %q failed, and Open did not", readOnly, log[n-1])
				}
			}
			if through {
				t.Logf("read-only %v: %d steps", readOnly, n-1)
				break
			}
			if s, err = outbox.Open(t.Context(), path, outbox.Options{}); err != nil {
				t.Fatalf("step %d, then: %v", n, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, side := range []string{"-wal", "-shm"} {
				if _, err := os.Stat(path + side); err == nil {
					t.Fatalf("step %d: a connection was left open: %s", n, path+side)
				}
			}
		}
	}
}
