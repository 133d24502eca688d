package outbox

import (
	"context"
	"math/rand/v2"
	"time"
)

// SQLite would checkpoint within the commit that makes the log long, and the
// caller could not tell that from the time a writer waits for. So the writer does it
// after its commit, when the slot is free again.
const (
	checkpointFrames = 1000 // not yet in the file: move them there
	restartFrames    = 6000 // in the log: see that it is used from its start again
	restartTries     = 25
)

const (
	logSizeSQL = `PRAGMA wal_checkpoint(NOOP)`
	passiveSQL = `PRAGMA wal_checkpoint(PASSIVE)`
	restartSQL = `PRAGMA wal_checkpoint(RESTART)`
)

// checkpoint moves a long log into the file. It waits for no reader and for no
// writer. A failure costs nothing: the log stays, and a later commit tries again.
func (w *writer) checkpoint(ctx context.Context) {
	frames, moved, _, err := w.runCheckpoint(ctx, logSizeSQL)
	if err != nil || frames-moved < checkpointFrames && frames < restartFrames {
		return
	}
	frames, _, _, err = w.runCheckpoint(ctx, passiveSQL)
	switch {
	case err != nil:
	case frames < restartFrames:
		w.longLog = 0
	case frames >= w.longLog:
		w.restartLog(ctx, frames)
	}
}

// restartLog lets a log that is far too long be used from its start again,
// which is possible at its very end only: beside apps that commit all the time a
// passive checkpoint never gets there. This one keeps writers out while it moves what the
// passive one has left, and gives up at once where it would have to wait; so it is
// tried again at short intervals, as the writer slot is, and then only when the log
// has grown further.
func (w *writer) restartLog(ctx context.Context, frames int) {
	for range restartTries {
		if _, _, busy, err := w.runCheckpoint(ctx, restartSQL); err != nil || !busy {
			break
		}
		time.Sleep(minPause + rand.N(2*minPause))
	}
	w.longLog = frames + checkpointFrames
}

// runCheckpoint returns the frames in the log, those of them that are in the
// file (both are -1 without a log), and whether it would have had to wait.
func (w *writer) runCheckpoint(ctx context.Context, query string) (frames, moved int, busy bool, err error) {
	s, err := w.stmt(ctx, query)
	if err != nil {
		return 0, 0, false, err
	}
	err = s.QueryRowContext(context.WithoutCancel(ctx)).Scan(&busy, &frames, &moved)
	return frames, moved, busy, err
}
