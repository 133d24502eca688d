package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

const (
	minFaultPause = 50 * time.Millisecond
	maxFaultPause = 5 * time.Second
	// unknownPatience is how long a fault that nobody knows to be temporary is
	// ridden out before the relay gives up.
	unknownPatience = time.Minute
)

// dbFault is the trouble that the database is in.
type dbFault struct {
	since time.Time // zero: none
	kind  outbox.Fault
	err   error
	tries int
	pause time.Duration
	until time.Time // no turn before
}

// exchangeFailed takes in the error of a turn. Whatever was decided stays decided
// and is settled when the database allows; nothing is published twice because
// of it. The error returned is one that waiting cannot cure.
func (l *loop) exchangeFailed(ctx context.Context, err error, now time.Time) error {
	if ctx.Err() != nil {
		if l.draining {
			l.fault.err = err // what the drain waited for
		}
		return nil // the caller looks at ctx
	}
	kind := outbox.FaultOf(err)
	f := &l.fault
	switch {
	case isFinal(kind, err),
		!kind.Temporary() && !f.since.IsZero() && now.Sub(f.since) > unknownPatience:
		return l.named(kind, err)
	}
	if kind == outbox.FaultBusy {
		l.m.busy.Inc()
	}
	if f.since.IsZero() {
		f.since, f.tries, f.pause = now, 0, minFaultPause
	}
	if f.tries == 0 || f.kind != kind {
		l.log.Warn().Str("database", kind.String()).Err(err).Int("unsettled", len(l.win.rows)).
			Msg("database cannot be written; finished work is kept and nothing new is published")
		l.r.status.database(fmt.Sprintf("%s: %v", kind, err))
	}
	f.kind, f.err = kind, err
	f.tries++
	f.until = now.Add(f.pause)
	f.pause = min(2*f.pause, maxFaultPause)
	return nil
}

// named gives a final error the file's name, if it lacks it, and what to do.
func (l *loop) named(kind outbox.Fault, err error) error {
	if path := l.db.Path(); !strings.Contains(err.Error(), path) {
		err = fmt.Errorf("%s: %w", path, err)
	}
	switch kind {
	case outbox.FaultReadOnly:
		return fmt.Errorf("%w (the file, its directory and the -wal and -shm files beside it must be writable)", err)
	case outbox.FaultDamaged:
		return fmt.Errorf("%w (the file is damaged: stop its writers and restore it from a backup)", err)
	}
	return err
}

// isFinal reports whether nothing but a person can cure err.
func isFinal(kind outbox.Fault, err error) bool {
	var schema *outbox.MigrationMismatchError
	return kind == outbox.FaultDamaged || kind == outbox.FaultReadOnly ||
		errors.Is(err, outbox.ErrFileReplaced) || errors.As(err, &schema)
}

// recovered ends the trouble after a turn that worked.
func (l *loop) recovered(now time.Time) {
	f := &l.fault
	if f.since.IsZero() {
		return
	}
	l.log.Info().Str("database", "usable").Dur("outage_ms", now.Sub(f.since)).Int("tries", f.tries).
		Msg("database can be written again")
	l.r.status.database("")
	*f = dbFault{}
}

// sameFilePoll is how often the path is looked at. It bounds for how long the
// relay goes on with a file that was replaced or removed.
const sameFilePoll = time.Second

// watchIdentity ends the relay when the path no longer leads to the open file,
// or that file has been overwritten.
// It has its own goroutine because the loop can wait for long on a locked file.
func (l *loop) watchIdentity(ctx context.Context, stop context.CancelCauseFunc) {
	t := time.NewTicker(sameFilePoll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := l.db.SameFile()
		var lost *outbox.FileError
		if errors.Is(err, outbox.ErrFileReplaced) || errors.As(err, &lost) {
			stop(l.named(outbox.FaultOther, err))
			return
		}
	}
}
