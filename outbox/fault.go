package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// Fault tells what kind of trouble a database error is, whatever the driver.
type Fault uint8

const (
	// FaultNone: no error.
	FaultNone Fault = iota
	// FaultBusy: another connection holds a lock. Temporary.
	FaultBusy
	// FaultFull: the disk or the file's page limit is full. Temporary: nothing
	// was written, and space may return.
	FaultFull
	// FaultIO: a read, write, sync or open failed. Temporary, for it may be a
	// network disk or the limit of open files.
	FaultIO
	// FaultReadOnly: the file, its directory or the file system cannot be
	// written, or the file was moved away. Final until a person acts.
	FaultReadOnly
	// FaultDamaged: the file is corrupt or no database. Final.
	FaultDamaged
	// FaultOther: anything else, such as a cancelled context or an SQL error.
	FaultOther
)

var faultNames = [...]string{"none", "busy", "full", "io", "read-only", "damaged", "other"}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Temporary reports whether waiting may cure the fault.
func (f Fault) Temporary() bool { return f == FaultBusy || f == FaultFull || f == FaultIO }

// Primary result codes of SQLite. They are part of its file-independent,
// stable interface.
const (
	codePerm       = 3
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeProtocol   = 15
	codeConstraint = 19
	codeNotADB     = 26
)

// FaultOf sorts err, which may wrap an error of any SQLite driver.
func FaultOf(err error) Fault {
	if err == nil {
		return FaultNone
	}
	code, ok := codeOf(err)
	switch {
	case errors.Is(err, ErrBusyExhausted), errors.Is(err, ErrBusyUpgrade):
		return FaultBusy
	case !ok, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return FaultOther
	}
	switch code & 0xff {
	case codeBusy, codeLocked, codeProtocol:
		return FaultBusy
	case codeFull:
		return FaultFull
	case codeIOErr, codeCantOpen:
		return FaultIO
	case codeReadOnly, codePerm:
		return FaultReadOnly
	case codeCorrupt, codeNotADB:
		return FaultDamaged
	}
	return FaultOther
}

// isConstraint reports whether a statement was refused by a constraint, which
// undoes the statement alone.
func isConstraint(err error) bool {
	if err == nil {
		return false
	}
	code, ok := codeOf(err)
	return ok && code&0xff == codeConstraint
}

// codeOf finds SQLite's result code in err, extended where the driver gives it.
//
// Drivers have no common interface. The one of this package has Code() int;
// others have a method or a field ExtendedCode or Code of an integer type of
// their own, which only reflection can read.
func codeOf(err error) (int, bool) {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code(), true
	}
	for err != nil {
		if code, ok := foreignCode(reflect.ValueOf(err)); ok {
			return code, true
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				if code, ok := codeOf(e); ok {
					return code, true
				}
			}
		}
		err = errors.Unwrap(err)
	}
	return 0, false
}

func foreignCode(v reflect.Value) (int, bool) {
	for _, m := range []reflect.Value{v.MethodByName("ExtendedCode"), v.MethodByName("Code")} {
		if m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
			if code, ok := integer(m.Call(nil)[0]); ok {
				return code, true
			}
		}
	}
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Struct {
		return 0, false
	}
	if code, ok := integer(v.FieldByName("ExtendedCode")); ok {
		return code, true
	}
	return integer(v.FieldByName("Code"))
}

func integer(v reflect.Value) (int, bool) {
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return int(v.Int()), true
	case v.CanUint():
		return int(v.Uint()), true
	}
	return 0, false
}
