//go:build !linux

package natstest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

func frozen(int) bool { return true }
