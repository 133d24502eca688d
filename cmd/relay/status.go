package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

// statusReport is the outbox in figures. Times are the database's; null where
// there is none.
type statusReport struct {
	Database      string           `json:"database"`
	Now           time.Time        `json:"now"`
	Pending       int64            `json:"pending"`
	Claimed       int64            `json:"claimed"`
	Delivered     int64            `json:"delivered"`
	Quarantined   int64            `json:"quarantined"`
	Expired       int64            `json:"expired_leases"`
	Far           int64            `json:"far_leases"` // end later than any lease can
	Orphans       *int64           `json:"orphans"`    // null: not counted
	OldestPending *time.Time       `json:"oldest_pending"`
	OldestSeconds *float64         `json:"oldest_pending_seconds"`
	NextDue       *time.Time       `json:"next_due"`
	ByCode        map[string]int64 `json:"quarantine_by_code"`
	Streams       []streamReport   `json:"streams"`
}

type streamReport struct {
	Stream        string     `json:"stream"`
	Pending       int64      `json:"pending"`
	Claimed       int64      `json:"claimed"`
	Quarantined   int64      `json:"quarantined"`
	OldestPending *time.Time `json:"oldest_pending"`
	OldestSeconds *float64   `json:"oldest_pending_seconds"`
}

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Count events by state and stream",
		Long: `status counts the events by state and stream, with the age of the oldest pending
one, the next due time, expired leases and quarantine by code.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond || every > time.Hour {
				return usagef("--every %v is outside 100ms..1h", every)
			}
			c, store, handle, err := a.open(cmd.Context(), reads)
			if err != nil {
				return err
			}
			defer store.Close()
			if watch {
				return a.watchStatus(cmd.Context(), c.Outbox.Path, handle, every)
			}
			return a.status(cmd.Context(), c.Outbox.Path, handle)
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "go on until interrupted")
	c.Flags().DurationVar(&every, "every", 2*time.Second, "`time` between two looks with --watch")
	return a.withDB(c)
}

func (a *app) status(ctx context.Context, path string, h *outbox.Handle) error {
	s, err := h.Stats(ctx)
	if err != nil {
		return err
	}
	r := newStatusReport(path, s)
	if a.json {
		return a.printJSON(r)
	}
	return a.printf("%s", r.text())
}

// watchStatus shows the status again and again. An interrupt is its normal end.
func (a *app) watchStatus(ctx context.Context, path string, h *outbox.Handle, every time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if !a.json && isTerminal(a.stdout) {
			if err := a.printf("\x1b[H\x1b[2J"); err != nil {
				return err
			}
		}
		if err := a.status(ctx, path, h); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func newStatusReport(path string, s outbox.Stats) statusReport {
	r := statusReport{
		Database: path, Now: s.Now,
		Pending: s.Pending, Claimed: s.Claimed, Delivered: s.Delivered, Quarantined: s.Quarantined,
		Expired: s.Expired, Far: s.FarLeases,
		OldestPending: timeOrNull(s.OldestPending), OldestSeconds: ageOrNull(s.Now, s.OldestPending), NextDue: timeOrNull(s.NextDue),
		ByCode: s.QuarantineByCode, Streams: []streamReport{},
	}
	if s.Orphans >= 0 {
		r.Orphans = &s.Orphans
	}
	if r.ByCode == nil {
		r.ByCode = map[string]int64{}
	}
	for _, st := range s.Streams {
		r.Streams = append(r.Streams, streamReport{
			Stream: st.Stream, Pending: st.Pending, Claimed: st.Claimed, Quarantined: st.Quarantined,
			OldestPending: timeOrNull(st.OldestPending), OldestSeconds: ageOrNull(s.Now, st.OldestPending),
		})
	}
	return r
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func ageOrNull(now, t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	seconds := now.Sub(t).Seconds()
	return &seconds
}

// text is the report for a person.
func (r *statusReport) text() string {
	var b strings.Builder
	w := newTable(&b)
	fmt.Fprintf(w, "database\t%s\n", printable(r.Database))
	fmt.Fprintf(w, "pending\t%s\t%s\n", humanize.Comma(r.Pending), r.pendingNote())
	fmt.Fprintf(w, "claimed\t%s\t%s\n", humanize.Comma(r.Claimed), r.claimedNote())
	fmt.Fprintf(w, "delivered\t%s\n", humanize.Comma(r.Delivered))
	fmt.Fprintf(w, "quarantined\t%s\t%s\n", humanize.Comma(r.Quarantined), countsText(r.ByCode))
	if r.Orphans != nil && *r.Orphans > 0 {
		fmt.Fprintf(w, "orphans\t%s\tevents without a delivery; see relay reconcile\n", humanize.Comma(*r.Orphans))
	}
	_ = w.Flush() // to memory
	if len(r.Streams) > 0 {
		b.WriteByte('\n')
		r.streamTable(&b)
	}
	return trimLines(b.String())
}

func (r *statusReport) streamTable(out io.Writer) {
	w := newTable(out)
	fmt.Fprintln(w, "STREAM\tPENDING\tCLAIMED\tQUARANTINED\tOLDEST PENDING")
	for _, s := range r.Streams {
		oldest := "-"
		if s.OldestPending != nil {
			oldest = roughDuration(r.Now.Sub(*s.OldestPending))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(s.Stream),
			humanize.Comma(s.Pending), humanize.Comma(s.Claimed), humanize.Comma(s.Quarantined), oldest)
	}
	_ = w.Flush() // out is memory
}

func (r *statusReport) pendingNote() string {
	var notes []string
	if r.OldestPending != nil {
		notes = append(notes, "oldest "+roughDuration(r.Now.Sub(*r.OldestPending)))
	}
	if r.NextDue != nil {
		if wait := r.NextDue.Sub(r.Now); wait > 0 {
			notes = append(notes, "next due in "+roughDuration(wait))
		} else {
			notes = append(notes, "due now")
		}
	}
	return strings.Join(notes, ", ")
}

func (r *statusReport) claimedNote() string {
	var notes []string
	if r.Expired > 0 {
		notes = append(notes, humanize.Comma(r.Expired)+" with an expired lease, taken over by the next claim")
	}
	if r.Far > 0 {
		notes = append(notes, humanize.Comma(r.Far)+" with a lease that ends too far ahead; see relay check")
	}
	return strings.Join(notes, ", ")
}

// countsText is "a 3, b 1", largest first.
func countsText(counts map[string]int64) string {
	names := sortedKeys(counts)
	sort.SliceStable(names, func(i, j int) bool { return counts[names[i]] > counts[names[j]] })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = printable(name) + " " + humanize.Comma(counts[name])
	}
	return strings.Join(parts, ", ")
}
