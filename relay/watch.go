package relay

import (
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher tells of writes to a database file or the files beside it.
type Watcher interface {
	// Events has an event after one write or several. It is not closed.
	Events() <-chan struct{}
	Close() error
}

// fileWatcher watches the directory, because the WAL and the journal come and
// go. While nobody receives, events wait in the kernel, which merges equal ones:
// a busy loop pays nothing for them.
type fileWatcher struct {
	fs     *fsnotify.Watcher
	names  map[string]bool
	events chan struct{}
	done   chan struct{}
	ended  chan struct{}
}

func watchFile(path string) (Watcher, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, err
	}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := fs.Add(filepath.Dir(real)); err != nil {
		fs.Close()
		return nil, err
	}
	w := &fileWatcher{
		fs:     fs,
		names:  map[string]bool{real: true, real + "-wal": true, real + "-journal": true},
		events: make(chan struct{}),
		done:   make(chan struct{}),
		ended:  make(chan struct{}),
	}
	go w.run()
	return w, nil
}

func (w *fileWatcher) run() {
	defer close(w.ended)
	for {
		select {
		case <-w.done:
			return
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if !w.names[e.Name] {
				continue
			}
		case _, ok := <-w.fs.Errors:
			// Events may have been lost, so this is one.
			if !ok {
				return
			}
		}
		select {
		case <-w.done:
			return
		case w.events <- struct{}{}:
		}
	}
}

func (w *fileWatcher) Events() <-chan struct{} { return w.events }

func (w *fileWatcher) Close() error {
	close(w.done)
	<-w.ended
	return w.fs.Close()
}

// probeSteps are when to look again after a file event: the event tells of a
// write, the commit becomes visible later, on a slow disk much later.
var probeSteps = [...]time.Duration{
	0, 500 * time.Microsecond, 1500 * time.Microsecond, 5 * time.Millisecond, 12 * time.Millisecond,
	30 * time.Millisecond, 70 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond,
}

// minProbeGap bounds how often a flood of events makes the relay look.
const minProbeGap = 250 * time.Microsecond
