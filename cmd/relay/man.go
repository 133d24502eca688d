package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the man pages into a directory",
		Long: `man writes relay.1 and a page for each command into a directory, which it makes
when it is missing. SOURCE_DATE_EPOCH sets the date in the pages.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one directory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Title: "RELAY", Section: "1", Source: "relay", Manual: "Outbox relay"}
			if err := doc.GenManTree(root, header, dir); err != nil {
				return err
			}
			pages, err := filepath.Glob(filepath.Join(dir, "relay*.1"))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"directory": dir, "pages": pages})
			}
			return a.printf("%d pages in %s\n", len(pages), dir)
		},
	}
}
