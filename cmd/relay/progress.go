package main

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows long work to a person at a terminal, and to nobody else.
type progress struct{ bar *progressbar.ProgressBar }

// progress starts a display on standard error; total -1 is unknown.
func (a *app) progress(what string, total int64) progress {
	if a.json || !isTerminal(a.stderr) {
		return progress{}
	}
	return progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

func (p progress) add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n) // only a display
	}
}

// end clears the display, so that what is printed next stands alone.
func (p progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish() // likewise
	}
}
