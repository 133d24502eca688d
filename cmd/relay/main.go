// Command relay publishes the events of a SQLite outbox to NATS JetStream.
//
// Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 a check found
// errors. An error is one line on standard error. With --json standard output
// gets an object with an "error" member as well, so that what reads it always
// sees valid JSON.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	return a.execute(context.Background(), os.Args[1:])
}

// Exit codes, part of the public interface.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitFindings = 3
)

// app is one invocation: its streams and the flags that all commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	json       bool
	configFile string
	db         string

	started bool // a command began: an error is no longer one of usage
}

// usageError reports a wrong command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errFindings reports that a check found errors and has printed them.
var errFindings = errors.New("errors were found")

// execute runs one command line and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !a.started { // the command line was not understood, so --json may not have been read
		err = usageError{err}
		a.json = a.json || wantsJSON(args)
	}
	return a.fail(err)
}

func wantsJSON(args []string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == "--json" || arg == "--json=true" {
			return true
		}
	}
	return false
}

// failure is an error as --json prints it.
type failure struct {
	Error    string         `json:"error"`
	Exit     int            `json:"exit"`
	Problems []problem      `json:"problems,omitempty"` // of a configuration
	Line     int            `json:"line,omitempty"`     // of standard input
	Field    string         `json:"field,omitempty"`
	Done     map[string]int `json:"done,omitempty"`   // what was written before
	Failed   []rowFailure   `json:"failed,omitempty"` // rows that stay as they are
}

// fail prints err and returns its exit code. Every configuration problem is an
// error of its own and gets its own line.
func (a *app) fail(err error) int {
	if errors.Is(err, errFindings) {
		return exitFindings
	}
	f := failure{Error: oneLine(err.Error()), Exit: exitFailed}
	var usage usageError
	var conf *configError
	var input *inputError
	var rows *rowsError
	switch {
	case errors.As(err, &conf):
		f.Exit, f.Problems = exitUsage, conf.Problems
		for _, p := range conf.Problems {
			fmt.Fprintln(a.stderr, "relay: "+oneLine(p.String()))
		}
	case errors.As(err, &usage):
		f.Exit = exitUsage
	case errors.As(err, &rows):
		f.Failed, f.Done = rows.Failed, map[string]int{rows.Did: rows.Done}
	case errors.As(err, &input):
		f.Line, f.Field, f.Done = input.Line, input.field(), input.Done
	}
	if conf == nil {
		fmt.Fprintln(a.stderr, "relay: "+f.Error)
	}
	if a.json {
		_ = a.printJSON(f) // standard error has it; the exit code tells
	}
	return f.Exit
}

// oneLine joins the lines of s and drops what a terminal would act on.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' || r < 0x20 || r == 0x7f }), " ")
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "relay",
		Short: "Publish the events of a SQLite outbox to NATS JetStream",
		Long: `relay publishes the events that applications commit to a SQLite outbox to NATS
JetStream, and inspects and repairs the outbox.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 a check found
errors. An error is one line on standard error; with --json standard output gets
an object with an "error" member as well.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			return usagef("a command is required; relay --help lists them")
		},
		Args: cobra.ArbitraryArgs,
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return unknownCommand(cmd, args[0])
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().BoolVar(&a.json, "json", false, "machine output: one JSON object, or one a line")
	root.PersistentFlags().StringVar(&a.configFile, "config", "", "configuration `file` (TOML)")
	_ = root.MarkPersistentFlagFilename("config", "toml") // only fails for a flag that does not exist
	root.AddCommand(
		a.runCommand(), a.migrateCommand(), a.checkCommand(),
		a.statusCommand(), a.listCommand(), a.showCommand(),
		a.enqueueCommand(), a.requeueCommand(), a.quarantineCommand(), a.reconcileCommand(),
		a.pruneCommand(), a.exportCommand(), a.importCommand(),
		a.versionCommand(), a.completionCommand(), a.manCommand(),
	)
	root.SetHelpCommand(helpCommand(root))
	for _, c := range root.Commands() {
		a.markStart(c)
		if c.ValidArgs == nil && c.Name() != "man" { // arguments are no files
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
	return root
}

// markStart notes when a command's own code begins.
func (a *app) markStart(c *cobra.Command) {
	run := c.RunE
	if run == nil {
		return
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		return run(cmd, args)
	}
}

func unknownCommand(root *cobra.Command, name string) error {
	hint := "relay --help lists the commands"
	if near := root.SuggestionsFor(name); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q; %s", name, hint)
}

func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			target, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("no help for %q; relay --help lists the commands", strings.Join(args, " "))
			}
			return target.Help()
		},
	}
}
