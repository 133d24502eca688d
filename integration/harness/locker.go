//go:build unix

package harness

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/outbox-relay/relay/integration/process"
	"github.com/outbox-relay/relay/integration/workload"
)

// LockOptions say how a locker uses the writer lock.
type LockOptions struct {
	DB    string
	Hold  time.Duration // how long each transaction holds the lock
	Pause time.Duration // time between two transactions
	Times int           // transactions; 0: until stopped
	Write bool          // each transaction commits a row of the application
	Wait  time.Duration // busy timeout; with 0 every refusal counts at once
}

// Locked is what a locker saw.
type Locked struct {
	Held    int `json:"held"`    // transactions that had the lock
	Refused int `json:"refused"` // transactions that found it taken
}

// Locker is a process that takes the writer lock.
type Locker struct {
	tb    testing.TB
	child *process.Process
}

// LaunchLocker starts one and returns at once.
func LaunchLocker(tb testing.TB, o LockOptions) *Locker {
	tb.Helper()
	return &Locker{tb: tb, child: startRole(tb, "locker", o)}
}

// StartLocker starts one and waits until it holds the lock for the first time.
func StartLocker(tb testing.TB, o LockOptions) *Locker {
	tb.Helper()
	l := LaunchLocker(tb, o)
	Eventually(tb, Patience, "another process holds the writer lock", func() (bool, string) {
		out := l.child.Output()
		return strings.Contains(out, "locked\n"), out
	})
	return l
}

// Wait waits until the locker is through.
func (l *Locker) Wait(within time.Duration) Locked {
	l.tb.Helper()
	var seen Locked
	waitRole(l.tb, l.child, within, &seen)
	return seen
}

// Kill ends the locker and so frees the lock.
func (l *Locker) Kill() { l.child.Kill() }

func playLocker(ctx context.Context, args string) error {
	var o LockOptions
	if err := json.Unmarshal([]byte(args), &o); err != nil {
		return err
	}
	db, err := workload.Open(o.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", o.Wait.Milliseconds())); err != nil {
		return err
	}
	var seen Locked
	for i := 0; (o.Times == 0 || i < o.Times) && ctx.Err() == nil; i++ {
		err := o.lockOnce(db, seen.Held == 0)
		var e *sqlite.Error
		switch {
		case err == nil:
			seen.Held++
		case errors.As(err, &e) && e.Code()&0xff == 5:
			seen.Refused++
		default:
			return err
		}
		time.Sleep(o.Pause)
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

// lockOnce is one transaction. The pool has one connection, so its statements
// all reach the same one.
func (o LockOptions) lockOnce(db *sql.DB, announce bool) error {
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer db.Exec("ROLLBACK") // fails, harmlessly, after a commit
	if announce {
		fmt.Println("locked")
	}
	time.Sleep(o.Hold)
	if !o.Write {
		return nil
	}
	if _, err := db.Exec("INSERT INTO shop_notes (text) VALUES ('busy')"); err != nil {
		return err
	}
	_, err := db.Exec("COMMIT")
	return err
}
