package main

import (
	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

type migrateReport struct {
	Path    string   `json:"path"`
	From    int      `json:"from"`
	To      int      `json:"to"`
	Created bool     `json:"created"`
	DryRun  bool     `json:"dry_run"`
	Steps   []string `json:"steps"`
}

func (a *app) migrateCommand() *cobra.Command {
	var o outbox.MigrateOptions
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create or upgrade the schema",
		Long: `migrate brings the outbox schema of a database to the current version, in one
transaction. It makes a missing file only with --create.`,
		Example: "  relay migrate --db /var/lib/relay/outbox.db --create",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings()
			if err != nil {
				return err
			}
			m, err := outbox.Migrate(cmd.Context(), c.Outbox.Path, o)
			if err != nil {
				return err
			}
			return a.printMigrated(migrateReport{
				Path: c.Outbox.Path, From: m.From, To: m.To, Created: m.Created, DryRun: o.DryRun, Steps: append([]string{}, m.Steps...),
			})
		},
	}
	c.Flags().BoolVar(&o.Create, "create", false, "make the file when it is missing")
	c.Flags().StringVar(&o.Tenant, "tenant", "", "take a version 1 file up; its rows get this tenant `name`")
	c.Flags().BoolVar(&o.AddIndexes, "add-indexes", false, "add this relay's indexes to a file that another library installed")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would be done, change nothing")
	return a.withDB(c)
}

func (a *app) printMigrated(r migrateReport) error {
	if a.json {
		return a.printJSON(r)
	}
	if len(r.Steps) == 0 {
		return a.printf("%s: schema version %d, nothing to do\n", r.Path, r.To)
	}
	did, is := "done", "is now at"
	if r.DryRun {
		did, is = "would do", "would be at"
	}
	for _, step := range r.Steps {
		if err := a.printf("%s: %s\n", did, step); err != nil {
			return err
		}
	}
	return a.printf("%s %s schema version %d\n", r.Path, is, r.To)
}
