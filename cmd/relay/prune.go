package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

func (a *app) pruneCommand() *cobra.Command {
	var delivered, quarantined string
	var r outbox.PruneRequest
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove old delivered and quarantined events",
		Long: `prune removes rows that were delivered, or quarantined, longer ago than an age such
as 168h, in bounded transactions. It never removes pending or claimed rows. What
was removed is not recognised any more: the same event can be enqueued again.`,
		Example: "  relay prune --db outbox.db --delivered 168h --dry-run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.Delivered, err = pruneAge("delivered", delivered); err != nil {
				return err
			}
			if r.Quarantined, err = pruneAge("quarantined", quarantined); err != nil {
				return err
			}
			switch {
			case r.Delivered == 0 && r.Quarantined == 0:
				return usagef("--delivered AGE or --quarantined AGE is required")
			case r.Batch < 1 || r.Batch > 1000:
				return usagef("--batch %d is outside 1..1000", r.Batch)
			}
			return a.prune(cmd.Context(), r)
		},
	}
	c.Flags().StringVar(&delivered, "delivered", "", "remove rows delivered longer ago than this `age`; 0s is all")
	c.Flags().StringVar(&quarantined, "quarantined", "", "remove rows quarantined longer ago than this `age`; 0s is all")
	c.Flags().IntVar(&r.Batch, "batch", 500, "rows in one transaction, 1..1000")
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "count only")
	return a.withDB(c)
}

// pruneAge reads an age; "" is 0, which leaves the state alone, and "0s" the
// shortest age there is.
func pruneAge(flag, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	age, err := parseDuration(s, 0, maxAge)
	if err != nil {
		return 0, usagef("--%s: %w", flag, err)
	}
	return max(age, tick), nil
}

type pruneReport struct {
	Delivered   int64 `json:"delivered"`
	Quarantined int64 `json:"quarantined"`
	DryRun      bool  `json:"dry_run"`
}

func (a *app) prune(ctx context.Context, r outbox.PruneRequest) error {
	mode := writes
	if r.DryRun {
		mode = reads
	}
	_, store, handle, err := a.open(ctx, mode)
	if err != nil {
		return err
	}
	defer store.Close()
	progress, shown := a.progress("prune", -1), int64(0)
	r.Progress = func(removed int64) {
		progress.add(int(removed - shown))
		shown = removed
	}
	n, err := handle.Prune(ctx, r)
	progress.end()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(pruneReport{n.Delivered, n.Quarantined, r.DryRun})
	}
	did := "removed"
	if r.DryRun {
		did = "would remove"
	}
	return a.printf("%s %d delivered, %d quarantined\n", did, n.Delivered, n.Quarantined)
}
