package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	daemonlib "github.com/coreos/go-systemd/v22/daemon"
)

// watchReload returns the channel of SIGHUP, which without it ends a process. The
// function stops watching.
func watchReload() (<-chan os.Signal, func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	return hup, func() { signal.Stop(hup) }
}

// watchSignals ends the run on the first SIGTERM or SIGINT and the process on
// the second. The function it returns stops watching.
func (d *daemon) watchSignals(stop context.CancelFunc) func() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		d.log.Info().Stringer("signal", s).Msg("stopping: waiting for the broker's answers")
		d.notify.send(daemonlib.SdNotifyStopping)
		stop()
		if s, ok = <-signals; ok {
			fmt.Fprintf(os.Stderr, "relay: second signal (%v): stopped at once; claimed rows come back when their lease ends\n", s)
			os.Exit(exitFailed)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}
