package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

// maxPage is the most rows that one call of the library returns or changes.
const maxPage = 1000

// filterFlags select rows.
type filterFlags struct {
	state, stream, tenant, code string
	after                       int64
}

func (f *filterFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.stream, "stream", "", "only this stream `name`")
	c.Flags().StringVar(&f.tenant, "tenant", "", "only this tenant `name`")
	c.Flags().StringVar(&f.code, "code", "", "only this quarantine or last failure `code`")
	c.Flags().Int64Var(&f.after, "after", 0, "only rows after this `row`")
}

func (f *filterFlags) filter() (outbox.Filter, error) {
	switch state := outbox.State(f.state); state {
	case "", outbox.Pending, outbox.InClaim, outbox.Delivered, outbox.Quarantined:
	default:
		return outbox.Filter{}, usagef("--state %q is none of pending, claimed, delivered, quarantined", f.state)
	}
	if f.after < 0 {
		return outbox.Filter{}, usagef("--after %d is negative", f.after)
	}
	return outbox.Filter{State: outbox.State(f.state), Stream: f.stream, Tenant: f.tenant, Code: f.code, After: f.after}, nil
}

// eachEntry calls fn with the rows that f selects, a page at a time, at most
// limit of them (0: all).
func eachEntry(ctx context.Context, h *outbox.Handle, f outbox.Filter, limit int64, fn func([]outbox.Entry) error) error {
	for seen := int64(0); limit == 0 || seen < limit; {
		size := int64(maxPage)
		if limit > 0 {
			size = min(size, limit-seen)
		}
		page, err := h.List(ctx, f, int(size))
		if err != nil || len(page) == 0 {
			return err
		}
		if err := fn(page); err != nil {
			return err
		}
		seen += int64(len(page))
		f.After = page[len(page)-1].Row
	}
	return nil
}

// listReport is a row with what identifies its event.
type listReport struct {
	rowReport
	ID     string `json:"id"`
	Source string `json:"source"`
	Type   string `json:"type"`
}

func (a *app) listCommand() *cobra.Command {
	var f filterFlags
	var limit int64
	c := &cobra.Command{
		Use:   "list",
		Short: "List rows with their state",
		Long: `list prints rows in the order of their ids. Events without a delivery row have the
state "orphan" and are listed when no state is asked for.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter()
			if err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit %d is negative", limit)
			}
			_, store, handle, err := a.open(cmd.Context(), reads)
			if err != nil {
				return err
			}
			defer store.Close()
			return a.list(cmd.Context(), handle, filter, limit)
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.state, "state", "", "only this `state`: pending, claimed, delivered or quarantined")
	completeFlag(c, "state", "pending", "claimed", "delivered", "quarantined")
	c.Flags().Int64Var(&limit, "limit", 100, "at most this many rows; 0 is all")
	return a.withDB(c)
}

func (a *app) list(ctx context.Context, h *outbox.Handle, f outbox.Filter, limit int64) error {
	due, err := h.Due(ctx)
	if err != nil {
		return err
	}
	header := "ROW\tSTATE\tTENANT\tSTREAM\tTYPE\tID\tATTEMPTS\tWHEN\tCODE\n"
	return eachEntry(ctx, h, f, limit, func(page []outbox.Entry) error {
		var b strings.Builder
		w := newTable(&b)
		fmt.Fprint(w, header)
		header = ""
		for i := range page {
			e := &page[i]
			r := listReport{newRowReport(e), e.Event.ID, e.Event.Source, e.Event.Type}
			if a.json {
				if err := a.printJSON(r); err != nil {
					return err
				}
				continue
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.Row, r.State, printable(r.Tenant), printable(r.Stream),
				printable(r.Type), printable(r.ID), r.Attempts, r.when(due.Now), printable(r.code()))
		}
		if a.json {
			return nil
		}
		_ = w.Flush() // to memory
		return a.printf("%s", trimLines(b.String()))
	})
}

// when is the time that matters in the row's state.
func (r *rowReport) when(now time.Time) string {
	switch {
	case r.State == string(outbox.Pending) && r.AvailableAt != nil:
		if wait := r.AvailableAt.Sub(now); wait > 0 {
			return "due in " + roughDuration(wait)
		}
		return "due"
	case r.State == string(outbox.InClaim) && r.ClaimExpires != nil:
		if left := r.ClaimExpires.Sub(now); left > 0 {
			return "lease ends in " + roughDuration(left)
		}
		return "lease ended"
	case r.State == string(outbox.Delivered) && r.DeliveredAt != nil:
		return roughDuration(now.Sub(*r.DeliveredAt)) + " ago"
	case r.State == string(outbox.Quarantined) && r.QuarantinedAt != nil:
		return roughDuration(now.Sub(*r.QuarantinedAt)) + " ago"
	}
	return "-"
}
