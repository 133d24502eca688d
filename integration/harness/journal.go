//go:build unix

package harness

import (
	"fmt"
	"sync"
	"time"
)

// Fault is something that can excuse a duplicate: a process that died or stood
// still between the broker's acknowledgement and ours.
type Fault struct {
	At   time.Time
	What string
}

// Journal records faults as they are caused. Safe for concurrent use; a nil
// Journal records nothing.
type Journal struct {
	mu     sync.Mutex
	faults []Fault
}

// Record adds a fault that happens now.
func (j *Journal) Record(what string) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faults = append(j.faults, Fault{At: time.Now(), What: what})
}

// Between returns the faults within [from, to].
func (j *Journal) Between(from, to time.Time) []Fault {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []Fault
	for _, f := range j.faults {
		if !f.At.Before(from) && !f.At.After(to) {
			found = append(found, f)
		}
	}
	return found
}

// String lists the faults, one a line.
func (j *Journal) String() string {
	if j == nil {
		return ""
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var s string
	for _, f := range j.faults {
		s += fmt.Sprintf("%s %s\n", f.At.Format("15:04:05.000"), f.What)
	}
	return s
}
