package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/outbox-relay/relay/outbox"
)

type codeMethod int

func (c codeMethod) Error() string { return "code" }
func (c codeMethod) Code() int     { return int(c) }

// Errors as another driver has them: fields of its own integer types.
type (
	errNo         int
	errNoExtended int
	fieldError    struct {
		Code         errNo
		ExtendedCode errNoExtended
	}
)

func (e fieldError) Error() string { return "fields" }

func TestFaultsAreSortedByCode(t *testing.T) {
	for code, want := range map[int]outbox.Fault{
		5: outbox.FaultBusy, 261: outbox.FaultBusy, 517: outbox.FaultBusy, 773: outbox.FaultBusy, 6: outbox.FaultBusy, 262: outbox.FaultBusy, 15: outbox.FaultBusy,
		13: outbox.FaultFull, 10: outbox.FaultIO, 778: outbox.FaultIO, 14: outbox.FaultIO,
		8: outbox.FaultReadOnly, 1032: outbox.FaultReadOnly, 1544: outbox.FaultReadOnly, 3: outbox.FaultReadOnly,
		11: outbox.FaultDamaged, 26: outbox.FaultDamaged, 1: outbox.FaultOther, 19: outbox.FaultOther, 9: outbox.FaultOther,
	} {
		for _, err := range []error{
			codeMethod(code),
			&outbox.SQLError{Op: "x", Err: codeMethod(code)},
			fmt.Errorf("%w: %w", errors.New("x"), codeMethod(code)),
			fieldError{errNo(code & 0xff), errNoExtended(code)},
			&fieldError{errNo(code & 0xff), errNoExtended(code)},
			errors.Join(errors.New("x"), fmt.Errorf("y: %w", fieldError{errNo(code & 0xff), errNoExtended(code)})),
		} {
			if got := outbox.FaultOf(err); got != want {
				t.Errorf("code %d in %T: %v, want %v", code, err, got, want)
			}
		}
	}
	for _, err := range []error{errors.New("x"), context.Canceled, context.DeadlineExceeded, outbox.ErrLostClaim, &outbox.BadRowsError{}} {
		if got := outbox.FaultOf(err); got != outbox.FaultOther {
			t.Errorf("%v: %v", err, got)
		}
	}
	if outbox.FaultOf(nil) != outbox.FaultNone || outbox.FaultOf(outbox.ErrBusyExhausted) != outbox.FaultBusy {
		t.Error("nil, or exhausted")
	}
	if !outbox.FaultFull.Temporary() || outbox.FaultDamaged.Temporary() || outbox.FaultReadOnly.Temporary() {
		t.Error("what is temporary")
	}
}

// Real errors of both drivers.
func TestFaultsOfRealDrivers(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fault := func(file, query string) outbox.Fault {
				db, err := sql.Open(driver, "file:"+filepath.Join(dir, file)+"?mode=rw&_pragma=busy_timeout(1)")
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				_, err = db.Exec(query)
				return outbox.FaultOf(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "text"), make([]byte, 5000), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "junk"), []byte("This is not a database, and long enough to be seen as none: "+string(make([]byte, 1000))), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := fault("junk", `SELECT * FROM sqlite_master`); got != outbox.FaultDamaged {
				t.Errorf("no database: %v", got)
			}
			if got := fault("missing", `SELECT * FROM sqlite_master`); got != outbox.FaultIO {
				t.Errorf("no file: %v", got)
			}
			db, err := sql.Open(driver, "file:"+filepath.Join(dir, "held")+"?_pragma=busy_timeout(1)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(`CREATE TABLE t (x UNIQUE)`); err != nil {
				t.Fatal(err)
			}
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec(`INSERT INTO t VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			if got := fault("held", `INSERT INTO t VALUES (2)`); got != outbox.FaultBusy {
				t.Errorf("held: %v", got)
			}
			if _, err := tx.Exec(`INSERT INTO t VALUES (1)`); outbox.FaultOf(err) != outbox.FaultOther {
				t.Errorf("constraint: %v", outbox.FaultOf(err))
			}
			if _, err := tx.Exec(`PRAGMA query_only = 1`); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(`INSERT INTO t VALUES (3)`); outbox.FaultOf(err) != outbox.FaultReadOnly {
				t.Errorf("read-only: %v", err)
			}
		})
	}
}
