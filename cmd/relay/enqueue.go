package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

type enqueueFlags struct {
	stream, tenant string
	batch          int
}

func (a *app) enqueueCommand() *cobra.Command {
	var f enqueueFlags
	c := &cobra.Command{
		Use:   "enqueue",
		Short: "Write events from standard input into the outbox",
		Long: `enqueue reads structured CloudEvents (the JSON format), one JSON object a line,
and writes them into the outbox as pending. Each batch is written whole or not at
all; an error names the line and the member, and earlier batches stay. The same
event again (tenant, source and id) is counted as already there; with other
content it is an error.

JSON data is stored byte for byte. "data" without "datacontenttype" is
application/json; a string under a media type that is not JSON is text;
"data_base64" is binary. Other members are extensions: strings, booleans and
32-bit integers.`,
		Example: `  echo '{"specversion":"1.0","id":"1","source":"/shop","type":"order.placed","data":{"n":1}}' |
    relay enqueue --db outbox.db --tenant acme --stream orders`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.enqueue(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.stream, "stream", "", "stream `name` of the events (required)")
	c.Flags().StringVar(&f.tenant, "tenant", "", "tenant `name` of the events (default: the configuration's)")
	c.Flags().IntVar(&f.batch, "batch", 500, "events in one transaction, 1..10000")
	return a.withDB(c)
}

func (a *app) enqueue(ctx context.Context, f enqueueFlags) error {
	c, err := a.settings()
	if err != nil {
		return err
	}
	if err := f.complete(&c); err != nil {
		return err
	}
	p, err := openProducer(ctx, &c)
	if err != nil {
		return err
	}
	defer p.close()
	progress := a.progress("enqueue", -1)
	var n enqueueCounts
	err = eachBatch(newLineReader(a.stdin, lineLimit(p.max)), f.batch,
		func(line []byte) (outbox.Event, error) {
			e, err := parseStructured(line, f.tenant, f.stream)
			if err == nil {
				err = e.Validate()
			}
			return e, err
		},
		func(events []outbox.Event, at func(int)) error {
			added, err := p.enqueue(ctx, events, at)
			if err == nil {
				n.add(added)
				progress.add(len(events))
			}
			return err
		})
	progress.end()
	return a.printOutcome(err, n.byOutcome(), "enqueued %d, already there %d\n", n.enqueued, n.already)
}

// complete checks the flags and takes the tenant from the configuration.
func (f *enqueueFlags) complete(c *config) error {
	switch {
	case f.stream == "":
		return usagef("--stream is required")
	case f.tenant == "" && c.Outbox.Tenant == "":
		return usagef("--tenant is required")
	case f.tenant != "" && c.Outbox.Tenant != "" && f.tenant != c.Outbox.Tenant:
		return usagef("--tenant %q is not the configuration's tenant %q", f.tenant, c.Outbox.Tenant)
	case f.batch < 1 || f.batch > 10000:
		return usagef("--batch %d is outside 1..10000", f.batch)
	}
	if f.tenant == "" {
		f.tenant = c.Outbox.Tenant
	}
	probe := outbox.Event{Tenant: f.tenant, Stream: f.stream, ID: "-", Source: "-", Type: "-"}
	if err := probe.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

// lineLimit bounds a line: JSON may spell a byte of the event as six.
func lineLimit(maxEvent int) int { return 6*maxEvent + 64<<10 }

type enqueueCounts struct{ enqueued, already int }

func (n *enqueueCounts) add(m enqueueCounts) {
	n.enqueued += m.enqueued
	n.already += m.already
}

func (n enqueueCounts) byOutcome() map[string]int {
	return map[string]int{"enqueued": n.enqueued, "already": n.already}
}

// enqueue writes events in one transaction. at is told which of them is being
// written, so that an error can name its line.
func (p *producer) enqueue(ctx context.Context, events []outbox.Event, at func(int)) (enqueueCounts, error) {
	var n enqueueCounts
	err := p.write(ctx, func(tx *sql.Tx) error {
		receipts, err := outbox.EnqueueAll(ctx, tx, events, outbox.MaxSize(p.max))
		if bad, ok := errors.AsType[*outbox.EventError](err); ok {
			at(bad.Index)
			return bad.Err
		}
		for _, r := range receipts {
			if r.Outcome == outbox.AlreadyEnqueued {
				n.already++
			} else {
				n.enqueued++
			}
		}
		at(-1)
		return err
	})
	return n, err
}
