//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// figure is one line of the table, with a value for each run.
type figure struct {
	what, unit, target string
	values             []float64
}

// record adds a run's value. target is "" for what is only there to compare.
func (b *bench) record(what, unit, target string, value float64) {
	for i := range b.figures {
		if b.figures[i].what == what {
			b.figures[i].values = append(b.figures[i].values, value)
			return
		}
	}
	b.figures = append(b.figures, figure{what, unit, target, []float64{value}})
}

func (f *figure) median() float64 {
	v := slices.Sorted(slices.Values(f.values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// markdown is the table with what it was measured on.
func (b *bench) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s, %d cores, %s; relay %s, nats-server %s, modernc.org/sqlite %s, river %s, goqite %s.\n\n",
		cpuModel(), runtime.NumCPU(), runtime.Version(), b.commit, version("github.com/nats-io/nats-server/v2", b.natsVersion),
		version("modernc.org/sqlite", ""), version("github.com/riverqueue/river", ""), version("maragu.dev/goqite", ""))
	s.WriteString("SQLite: WAL, synchronous NORMAL for everybody. Stream: file storage, the server's default sync_interval (2 min). " +
		"Relay: default configuration. Events have 1 KiB of data and all of the relay's headers.\n\n")
	s.WriteString("| what | median | lowest to highest | target |\n|---|---|---|---|\n")
	for _, f := range b.figures {
		fmt.Fprintf(&s, "| %s | %s %s | %s to %s | %s |\n", f.what, number(f.median()), f.unit,
			number(slices.Min(f.values)), number(slices.Max(f.values)), f.target)
	}
	return s.String()
}

// number has three digits that count.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func version(module, otherwise string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return otherwise
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimLeft(strings.TrimSpace(name), ": ")
		}
	}
	return runtime.GOARCH
}

func commit() string {
	out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "of unknown version"
	}
	return strings.TrimSpace(string(out))
}

// quantile q of values, which it sorts.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}
