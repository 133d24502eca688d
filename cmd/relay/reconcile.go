package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

func (a *app) reconcileCommand() *cobra.Command {
	var repair bool
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "List events without a delivery row, and repair them",
		Long: `reconcile lists orphans: events without a delivery row, which no relay sees (exit 3
if there are any). --repair gives each a pending delivery, due now.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if repair {
				return a.repairOrphans(cmd.Context())
			}
			return a.listOrphans(cmd.Context())
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "give each orphan a pending delivery")
	return a.withDB(c)
}

// eachOrphans calls fn with the orphans, a page at a time.
func eachOrphans(ctx context.Context, h *outbox.Handle, fn func([]int64) error) error {
	for after := int64(0); ; {
		rows, err := h.Orphans(ctx, after, maxPage)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := fn(rows); err != nil {
			return err
		}
		after = rows[len(rows)-1]
	}
}

func (a *app) listOrphans(ctx context.Context) error {
	_, store, handle, err := a.open(ctx, reads)
	if err != nil {
		return err
	}
	defer store.Close()
	found := []int64{}
	err = eachOrphans(ctx, handle, func(rows []int64) error {
		found = append(found, rows...)
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.printOrphans(found); err != nil {
		return err
	}
	if len(found) > 0 {
		return errFindings
	}
	return nil
}

func (a *app) printOrphans(rows []int64) error {
	if a.json {
		return a.printJSON(map[string]any{"orphans": rows})
	}
	if len(rows) == 0 {
		return a.printf("no orphans\n")
	}
	for _, row := range rows {
		if err := a.printf("row %d has no delivery; relay reconcile --repair makes it pending\n", row); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) repairOrphans(ctx context.Context) error {
	c, store, handle, err := a.open(ctx, writes)
	if err != nil {
		return err
	}
	defer store.Close()
	progress := a.progress("reconcile", -1)
	o := operation{name: "reconcile", did: "repaired"}
	var done []int64
	err = eachOrphans(ctx, handle, func(rows []int64) error {
		repaired, err := handle.Repair(ctx, rows)
		done = append(done, repaired...)
		progress.add(len(rows))
		return err
	})
	progress.end()
	a.audit(&c, o, done)
	if err != nil {
		return err
	}
	return a.printOperated(o, done)
}
