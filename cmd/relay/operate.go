package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

// rowIDs reads row ids from the command line, each once.
func rowIDs(args []string) ([]int64, error) {
	rows, seen := make([]int64, 0, len(args)), map[int64]bool{}
	for _, arg := range args {
		row, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || row <= 0 {
			return nil, usagef("%q is no row id; a row id is a positive integer, as relay list shows it", arg)
		}
		if !seen[row] {
			seen[row] = true
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// rowFailure is a row that an operation left as it is.
type rowFailure struct {
	Row   int64  `json:"row"`
	Error string `json:"error"`
}

// rowsError reports rows that could not be changed. The others were.
type rowsError struct {
	Did    string // "requeued"
	Done   int
	Failed []rowFailure
}

func (e *rowsError) Error() string {
	s := fmt.Sprintf("%d of %d rows not %s", len(e.Failed), len(e.Failed)+e.Done, e.Did)
	for i, f := range e.Failed {
		if i == 5 {
			return s + "; …"
		}
		s += fmt.Sprintf("; row %d: %s", f.Row, f.Error)
	}
	return s
}

// operation is requeue or quarantine: an operator's change of rows.
type operation struct {
	name, did string
	change    func(context.Context, *outbox.Handle, []int64) ([]outbox.RowResult, error)
	reason    string // for the audit line
}

// operate changes the named rows and reports each that could not be changed.
func (a *app) operate(ctx context.Context, o operation, rows []int64) error {
	c, store, handle, err := a.open(ctx, writes)
	if err != nil {
		return err
	}
	defer store.Close()
	results, err := o.change(ctx, handle, rows)
	var done []int64
	failed := &rowsError{Did: o.did}
	for _, r := range results {
		if r.Err != nil {
			failed.Failed = append(failed.Failed, rowFailure{r.Row, rowErrorText(r)})
			continue
		}
		done = append(done, r.Row)
	}
	failed.Done = len(done)
	a.audit(&c, o, done)
	if err != nil {
		return err
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return a.printOperated(o, done)
}

func rowErrorText(r outbox.RowResult) string {
	if r.Err == outbox.ErrNotFound {
		return "no such row"
	}
	return r.Err.Error()
}

func (a *app) printOperated(o operation, rows []int64) error {
	if a.json {
		return a.printJSON(map[string]any{o.did: len(rows), "rows": append([]int64{}, rows...)})
	}
	return a.printf("%s %d\n", o.did, len(rows))
}

// operateAll changes every row that f selects, a page at a time. Rows that
// others change meanwhile are left alone.
func (a *app) operateAll(ctx context.Context, o operation, f outbox.Filter) error {
	c, store, handle, err := a.open(ctx, writes)
	if err != nil {
		return err
	}
	defer store.Close()
	progress := a.progress(o.name, -1)
	var done []int64
	err = eachEntry(ctx, handle, f, 0, func(page []outbox.Entry) error {
		rows := make([]int64, len(page))
		for i := range page {
			rows[i] = page[i].Row
		}
		results, err := o.change(ctx, handle, rows)
		for _, r := range results {
			if r.Err == nil {
				done = append(done, r.Row)
			}
		}
		progress.add(len(rows))
		return err
	})
	progress.end()
	a.audit(&c, o, done)
	if err != nil {
		return fmt.Errorf("%s: %d rows %s before: %w", o.name, len(done), o.did, err)
	}
	return a.printOperated(o, done)
}

// maxAuditRows bounds the row ids in an audit line.
const maxAuditRows = 100

// audit logs who changed which rows, on standard error.
func (a *app) audit(c *config, o operation, rows []int64) {
	if len(rows) == 0 {
		return
	}
	format := logConfig{Level: "info", Format: c.Log.Format} // whatever the level: this is a record
	if c.file == "" && isTerminal(a.stderr) {
		format.Format = "console"
	}
	log := newLogger(a.stderr, format)
	event := log.Info().Str("action", o.name).Str("database", c.Outbox.Path).Str("by", operatorName()).
		Int("count", len(rows)).Ints64("rows", rows[:min(len(rows), maxAuditRows)])
	if o.reason != "" {
		event = event.Str("reason", o.reason)
	}
	event.Msg("operator action")
}

func operatorName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

func (a *app) requeueCommand() *cobra.Command {
	var f filterFlags
	var all bool
	c := &cobra.Command{
		Use:   "requeue {ROW… | --all}",
		Short: "Send quarantined events again",
		Long: `requeue makes quarantined rows pending: due now, attempts 0, last failure kept.
Rows in another state stay as they are and are reported (exit 1). --all takes every
quarantined row that the filters select.`,
		Example: "  relay requeue --db outbox.db 12 15\n  relay requeue --config relay.toml --all --code too_large",
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := rowIDs(args)
			if err != nil {
				return err
			}
			o := operation{name: "requeue", did: "requeued", change: func(ctx context.Context, h *outbox.Handle, rows []int64) ([]outbox.RowResult, error) {
				return h.Requeue(ctx, rows)
			}}
			filtered := f != filterFlags{}
			switch {
			case all && len(rows) > 0:
				return usagef("use row ids or --all, not both")
			case !all && len(rows) == 0:
				return usagef("name the rows, or use --all")
			case !all && filtered:
				return usagef("--stream, --tenant, --code and --after go with --all")
			case !all:
				return a.operate(cmd.Context(), o, rows)
			}
			f.state = string(outbox.Quarantined)
			filter, err := f.filter()
			if err != nil {
				return err
			}
			return a.operateAll(cmd.Context(), o, filter)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "every quarantined row that the filters select")
	f.register(c)
	return a.withDB(c)
}

// maxReason bounds an operator's reason, in bytes: the stored one begins with
// "operator: ".
const maxReason = 2000

func (a *app) quarantineCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "quarantine ROW… --reason TEXT",
		Short: "Set pending events aside",
		Long: `quarantine sets pending rows aside with a reason, until they are requeued. Rows in
another state stay as they are and are reported (exit 1).`,
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := rowIDs(args)
			if err != nil {
				return err
			}
			switch {
			case len(rows) == 0:
				return usagef("name the rows")
			case strings.TrimSpace(reason) == "":
				return usagef("--reason is required")
			case printable(reason) != reason:
				return usagef("--reason must be one line without control characters")
			case len(reason) > maxReason:
				return usagef("--reason has %d bytes, more than %d", len(reason), maxReason)
			}
			return a.operate(cmd.Context(), operation{
				name: "quarantine", did: "quarantined", reason: reason,
				change: func(ctx context.Context, h *outbox.Handle, rows []int64) ([]outbox.RowResult, error) {
					return h.QuarantinePending(ctx, rows, reason)
				},
			}, rows)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for the next operator (required)")
	return a.withDB(c)
}
