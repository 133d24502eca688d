//go:build unix

package outbox_test

import (
	"os/exec"
	"syscall"
)

func becomeNobody(cmd *exec.Cmd) {
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}
