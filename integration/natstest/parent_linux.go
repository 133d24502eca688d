package natstest

import "syscall"

// dieWithParent has the kernel kill the server when the test process dies, so
// that a killed test run leaves none behind.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
