package outbox

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrLostClaim reports that the token no longer owns the row: it expired or
	// was claimed again. Drop the work; retrying cannot help.
	ErrLostClaim = errors.New("claim lost")
	// ErrNotFound reports that the row does not exist for this handle.
	ErrNotFound = errors.New("no such row")
	// ErrEntropyUnavailable reports that no token could be drawn. Nothing changed.
	ErrEntropyUnavailable = errors.New("no entropy for a claim token")
	// ErrBusyExhausted reports that the writer slot stayed taken through every
	// retry. Nothing changed; try again later.
	ErrBusyExhausted = errors.New("database stayed busy")
	// ErrBusyUpgrade reports that a deferred transaction could not take the
	// writer slot. Roll back and start it again with BEGIN IMMEDIATE ([Begin]).
	ErrBusyUpgrade = errors.New("deferred transaction could not be upgraded; begin it with BEGIN IMMEDIATE")
	// ErrFileReplaced reports that the path no longer leads to the open file.
	ErrFileReplaced = errors.New("database file was replaced or removed")
)

// Rule names the broken rule of an InvalidEventError.
type Rule string

const (
	// RuleEmpty: the field is required and absent, or present and empty.
	RuleEmpty Rule = "empty"
	// RuleTooLong: the field has more bytes than Limit.
	RuleTooLong Rule = "too_long"
	// RuleFormat: forbidden characters, wrong grammar, or a type that does not fit.
	RuleFormat Rule = "format"
	// RuleRange: a time outside 1970..9999.
	RuleRange Rule = "range"
	// RuleMissing: another field requires this one.
	RuleMissing Rule = "missing"
	// RuleTooBig: the whole event exceeds the size limit.
	RuleTooBig Rule = "too_big"
)

// InvalidEventError reports an event that breaks a rule. Nothing was written.
type InvalidEventError struct {
	Field  string // attribute or column name, "extensions.NAME" for an extension
	Rule   Rule
	Limit  int // in bytes, where the rule has one
	Actual int // likewise
	Detail string
}

func (e *InvalidEventError) Error() string {
	return fmt.Sprintf("invalid event: %s: %s", e.Field, e.problem())
}

// problem is the error without its field.
func (e *InvalidEventError) problem() string {
	s := string(e.Rule)
	if e.Limit > 0 {
		s += fmt.Sprintf(" (%d bytes, limit %d)", e.Actual, e.Limit)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// TransitionError (IllegalTransition) reports an operation on a row that is in
// the wrong state for it.
type TransitionError struct {
	Row   int64
	State State
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("row %d is %s", e.Row, e.State)
}

// IdempotencyConflictError reports an enqueue whose identity exists with other
// content.
type IdempotencyConflictError struct{ Row int64 }

func (e *IdempotencyConflictError) Error() string {
	return fmt.Sprintf("an event with this tenant, source and id but other content is row %d", e.Row)
}

// BadRow names a row that a claim cannot hand out.
type BadRow struct {
	Row  int64
	Code string // "undecodable" or "counter_overflow"
	Err  error  // *SerializationError or *CounterOverflowError
}

// BadRowsError is a claim's refusal. It names every bad row of the batch;
// nothing changed.
type BadRowsError struct{ Rows []BadRow }

func (e *BadRowsError) Error() string {
	if len(e.Rows) == 0 {
		return "bad rows"
	}
	return fmt.Sprintf("%d bad rows, first row %d: %v", len(e.Rows), e.Rows[0].Row, e.Rows[0].Err)
}

// Unwrap gives each row's own error.
func (e *BadRowsError) Unwrap() []error {
	errs := make([]error, len(e.Rows))
	for i, r := range e.Rows {
		errs[i] = r.Err
	}
	return errs
}

// SerializationError reports a stored row that cannot be decoded.
type SerializationError struct {
	Row    int64
	Field  string
	Detail string
}

func (e *SerializationError) Error() string {
	return fmt.Sprintf("row %d: column %s: %s", e.Row, e.Field, e.Detail)
}

// CounterOverflowError reports a row whose attempts cannot be counted further.
type CounterOverflowError struct{ Row int64 }

func (e *CounterOverflowError) Error() string {
	return fmt.Sprintf("row %d: attempts counter overflows", e.Row)
}

// InvalidLimitError reports a limit outside its bounds.
type InvalidLimitError struct{ Value, Min, Max int }

func (e *InvalidLimitError) Error() string {
	return fmt.Sprintf("limit %d is outside %d..%d", e.Value, e.Min, e.Max)
}

// MigrationMismatchError reports a file whose schema is not ours. Problems has a
// line for each missing table, column, constraint, key, index or marker.
type MigrationMismatchError struct {
	Path     string
	Version  int // schema version found; 0: none
	Problems []string
	Remedy   string
}

func (e *MigrationMismatchError) Error() string {
	s := "schema mismatch"
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	for i, p := range e.Problems {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		s += sep + p
	}
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// SQLError wraps the driver's error with the operation.
type SQLError struct {
	Op  string
	Err error
}

func (e *SQLError) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *SQLError) Unwrap() error { return e.Err }

// ErrSnapshotBudget reports that a snapshot used up its pages or its time.
var ErrSnapshotBudget = errors.New("snapshot budget used up")

// InvalidDurationError reports a duration outside its bounds or finer than a
// millisecond.
type InvalidDurationError struct {
	Name            string
	Value, Min, Max time.Duration
}

func (e *InvalidDurationError) Error() string {
	return fmt.Sprintf("%s %v is not whole milliseconds within %v..%v", e.Name, e.Value, e.Min, e.Max)
}

// IdentityConflictError reports an import whose identity exists with other content.
type IdentityConflictError struct{ Row int64 }

func (e *IdentityConflictError) Error() string {
	return fmt.Sprintf("row %d has this identity with other content", e.Row)
}

// ImportConflictError reports an import whose identity exists in another state.
type ImportConflictError struct {
	Row   int64
	State State
}

func (e *ImportConflictError) Error() string {
	return fmt.Sprintf("row %d exists and is %s", e.Row, e.State)
}

// StateConflictError reports a Finalize of a row that is not canonical pending any more.
type StateConflictError struct {
	Row   int64
	State State
}

func (e *StateConflictError) Error() string {
	return fmt.Sprintf("row %d is no canonical pending row (%s)", e.Row, e.State)
}

// EventError tells which event of a batch made it fail.
type EventError struct {
	Index int // in the batch, from 0
	Err   error
}

func (e *EventError) Error() string { return fmt.Sprintf("event %d: %v", e.Index, e.Err) }

// Unwrap returns what was wrong with the event.
func (e *EventError) Unwrap() error { return e.Err }
