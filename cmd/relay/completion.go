package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion {bash|zsh|fish}",
		Short: "Print a completion script for a shell",
		Long: `completion prints the completion script for bash, zsh or fish. Load it with
  source <(relay completion bash)
or save it where the shell looks for completions.`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			var script bytes.Buffer
			if err := writeCompletion(cmd.Root(), args[0], &script); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"shell": args[0], "script": script.String()})
			}
			_, err := script.WriteTo(a.stdout)
			return err
		},
	}
}

func writeCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return fmt.Errorf("no completions for %s", shell)
}

// completeFlag tells shells the values of a flag.
func completeFlag(c *cobra.Command, flag string, values ...string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // c has no such flag
	}
}
