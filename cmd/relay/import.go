package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

type importFlags struct {
	batch       int
	quarantined string
}

// What --quarantined says about rows that were quarantined where they come from.
const (
	quarantinedRefuse  = "refuse"
	quarantinedSkip    = "skip"
	quarantinedPending = "pending"
)

func (a *app) importCommand() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import",
		Short: "Read rows that export wrote, or that come from another outbox",
		Long: `import reads JSON lines as relay export writes them and inserts their events,
pending or delivered at the given time. A line needs "tenant", "stream", "state"
(pending or delivered), "delivered_at" if delivered, and "event"; other members of
an export are not used. A claimed row comes in as pending. Each batch is written
whole or not at all. The same content and state again is counted as already there;
other content or another state under the same identity is an error that names the
line, so an import can be repeated after a failure.`,
		Example: "  relay import --db new.db < export.ndjson",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch f.quarantined {
			case quarantinedRefuse, quarantinedSkip, quarantinedPending:
			default:
				return usagef("--quarantined %q is none of refuse, skip, pending", f.quarantined)
			}
			if f.batch < 1 || f.batch > 10000 {
				return usagef("--batch %d is outside 1..10000", f.batch)
			}
			return a.importLines(cmd.Context(), f)
		},
	}
	c.Flags().IntVar(&f.batch, "batch", 500, "rows in one transaction, 1..10000")
	c.Flags().StringVar(&f.quarantined, "quarantined", quarantinedRefuse,
		"quarantined rows: `refuse` is an error, skip leaves them out, pending imports them as pending")
	completeFlag(c, "quarantined", quarantinedRefuse, quarantinedSkip, quarantinedPending)
	return a.withDB(c)
}

// importItem is a line to import; Skip leaves it out.
type importItem struct {
	outbox.ImportEvent
	Skip bool
}

type importCounts struct{ imported, already, skipped int }

func (n importCounts) byOutcome() map[string]int {
	return map[string]int{"imported": n.imported, "already": n.already, "skipped": n.skipped}
}

func (a *app) importLines(ctx context.Context, f importFlags) error {
	c, err := a.settings()
	if err != nil {
		return err
	}
	p, err := openProducer(ctx, &c)
	if err != nil {
		return err
	}
	defer p.close()
	progress := a.progress("import", -1)
	var n importCounts
	err = eachBatch(newLineReader(a.stdin, lineLimit(p.max)), f.batch,
		func(line []byte) (importItem, error) { return f.parse(line, c.Outbox.Tenant) },
		func(items []importItem, at func(int)) error {
			added, err := p.importItems(ctx, items, at)
			if err == nil {
				n.imported += added.imported
				n.already += added.already
				n.skipped += added.skipped
				progress.add(len(items))
			}
			return err
		})
	progress.end()
	return a.printOutcome(err, n.byOutcome(), "imported %d, already there %d, skipped %d\n", n.imported, n.already, n.skipped)
}

// parse reads one line. tenant, when set, is the only one allowed.
func (f *importFlags) parse(line []byte, tenant string) (importItem, error) {
	if _, err := readObject(line); err != nil { // names a member that comes twice
		return importItem{}, err
	}
	var l exportLine
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return importItem{}, decodeProblem(err)
	}
	e, err := l.Event.event(l.Tenant, l.Stream)
	if err != nil {
		return importItem{}, err
	}
	switch {
	case l.DecodeError != "":
		return importItem{}, fieldf("decode_error", "the row could not be decoded when it was exported")
	case tenant != "" && l.Tenant != tenant:
		return importItem{}, fieldf("tenant", "%q is not the configuration's tenant %q", l.Tenant, tenant)
	}
	item := importItem{ImportEvent: outbox.ImportEvent{Event: e}}
	if err := f.setState(&item, &l.rowReport); err != nil {
		return importItem{}, err
	}
	return item, e.Validate()
}

// setState says how the row comes in.
func (f *importFlags) setState(item *importItem, r *rowReport) error {
	switch outbox.State(r.State) {
	case outbox.Pending, outbox.InClaim, orphanState:
		return nil
	case outbox.Delivered:
		if r.DeliveredAt == nil {
			return fieldf("delivered_at", "is missing")
		}
		item.DeliveredAt = r.DeliveredAt.UTC()
		return nil
	case outbox.Quarantined:
		item.Skip = f.quarantined == quarantinedSkip
		if f.quarantined == quarantinedRefuse {
			return fieldf("state", "the row was quarantined; --quarantined skip leaves such rows out, --quarantined pending imports them as pending")
		}
		return nil
	}
	return fieldf("state", "%q is none of pending, claimed, delivered, quarantined", r.State)
}

// decodeProblem names the member that encoding/json could not read.
func decodeProblem(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fieldf(strings.TrimPrefix(wrong.Field, "rowReport."), "must not be a JSON %s", wrong.Value)
	}
	return fieldf("", "%s", fmt.Sprint(err)[len("json: "):])
}

// importItems writes items in one transaction.
func (p *producer) importItems(ctx context.Context, items []importItem, at func(int)) (importCounts, error) {
	var n importCounts
	err := p.write(ctx, func(tx *sql.Tx) error {
		for i, item := range items {
			if item.Skip {
				n.skipped++
				continue
			}
			at(i)
			outcome, _, err := outbox.Import(ctx, tx, item.ImportEvent)
			if err != nil {
				return err
			}
			if outcome == outbox.AlreadyImported {
				n.already++
			} else {
				n.imported++
			}
		}
		at(-1)
		return nil
	})
	return n, err
}
