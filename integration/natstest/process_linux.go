package natstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dieWithParent has the kernel kill the server when the test process dies, so
// that a killed test run leaves none behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// frozen tells whether every thread of the process has stopped: SIGSTOP
// returns before that.
func frozen(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has just ended
		}
		// "TID (NAME) STATE …", and the name can hold anything.
		_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(" "))
		if len(state) == 0 || state[0] != 'T' {
			return false
		}
	}
	return len(stats) > 0
}
