package main

import (
	"io"
	"os"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// newLogger logs to w. The level is the process's own, so that a reload can
// change it.
func newLogger(w io.Writer, c logConfig) zerolog.Logger {
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	setLogLevel(c.Level)
	if c.Format == "console" {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !isTerminal(w), TimeFormat: "2006-01-02 15:04:05.000"}
	}
	return zerolog.New(w).With().Timestamp().Logger()
}

// setLogLevel sets a level that the configuration has checked.
func setLogLevel(name string) {
	level, err := zerolog.ParseLevel(name)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}

// isTerminal tells whether a person watches w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
