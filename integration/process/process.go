//go:build unix

// Package process runs child processes that never outlive their parent: each
// has a process group of its own, and on Linux the kernel kills it when the
// parent dies, however it dies.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Spec says what to start.
type Spec struct {
	Path string
	Args []string
	Env  []string // added to the parent's environment
	Log  string   // file that takes stdout and stderr; it is appended to
}

// Process is one started child.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{} // closed after cmd has been waited for
}

// Start starts a child and returns at once.
func Start(s Spec) (*Process, error) {
	out, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	p := &Process{spec: s, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the exit status is read from ProcessState
		close(p.done)
	}()
	return p, nil
}

// PID is the child's process id, and the id of its process group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the child has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends sig to the child itself, not to its group.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the whole process group with SIGKILL and waits for the child. A
// child that has ended already is left alone.
func (p *Process) Kill() {
	if p.Running() {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // it may have ended meanwhile
	}
	<-p.done
}

// Stop asks the child to end (SIGTERM, and SIGCONT in case it is stopped),
// waits up to grace, and then kills it. The result is the exit code.
func (p *Process) Stop(grace time.Duration) (int, error) {
	if p.Running() {
		_ = p.Signal(syscall.SIGTERM) // it may have ended meanwhile
		_ = p.Signal(syscall.SIGCONT)
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
	}
	return code, err
}

// Wait waits for the child's end and returns its exit code; -1 is a child that
// a signal ended. The error is ctx's.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		if !p.Running() {
			return p.cmd.ProcessState.ExitCode(), nil
		}
		return -1, fmt.Errorf("%s (pid %d) has not ended: %w", p.spec.Path, p.PID(), ctx.Err())
	}
}

// Output is what the log file holds by now.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.spec.Log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

// Tail is the last n lines of Output.
func (p *Process) Tail(n int) string {
	lines := strings.Split(strings.TrimRight(p.Output(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
