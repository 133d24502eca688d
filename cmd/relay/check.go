package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

func (a *app) checkCommand() *cobra.Command {
	var timeout time.Duration
	var limit int
	c := &cobra.Command{
		Use:   "check",
		Short: "Check configuration, database and broker",
		Long: `check reads the configuration, checks the schema and the data of the database, and,
with --config, the broker: whether it can be reached, a stream for every route, and
settings that lose or double events. Each finding has a severity, why it matters
and what to do. Errors make the exit code 3; warnings, and what the server refuses
to say, do not. Nothing is changed, neither in the database nor at the broker.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case timeout < time.Second || timeout > 10*time.Minute:
				return usagef("--timeout %v is outside 1s..10m", timeout)
			case limit < 1 || limit > 10000:
				return usagef("--limit %d is outside 1..10000", limit)
			}
			return a.check(cmd.Context(), timeout, limit)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "`time` for the broker to answer")
	c.Flags().IntVar(&limit, "limit", 100, "at most this many findings about the data")
	return a.withDB(c)
}

func (a *app) check(ctx context.Context, timeout time.Duration, limit int) error {
	c, store, handle, err := a.open(ctx, reads)
	if err != nil {
		return err
	}
	defer store.Close()
	findings, err := checkData(ctx, handle, limit)
	if err != nil {
		return err
	}
	if c.file != "" {
		broker, err := checkBroker(ctx, &c, timeout)
		if err != nil {
			return err
		}
		findings = append(findings, broker...)
	}
	return a.printFindings(&c, findings)
}

// checkBroker asks the broker, within timeout.
func checkBroker(ctx context.Context, c *config, timeout time.Duration) ([]jetstream.Finding, error) {
	if err := c.requireBroker(); err != nil {
		return nil, err
	}
	s, err := c.reloadable()
	if err != nil {
		return nil, err
	}
	if s.Routes.Len() == 0 {
		return []jetstream.Finding{{
			Severity: jetstream.SeverityError, Subject: "configuration", Problem: "there is no [[route]]",
			Why: "relay run does not start without one", Fix: "add a [[route]] with a subject",
		}}, nil
	}
	p, err := jetstream.Connect(c.natsOptions(zerolog.Nop()))
	if err != nil {
		return nil, c.natsProblems(err)
	}
	defer p.Close()
	p.SetRoutes(s.Routes)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p.Preflight(ctx, s.Routes, c.preflightOptions(s)), nil
}

func (c *config) preflightOptions(s relay.Settings) jetstream.PreflightOptions {
	return jetstream.PreflightOptions{
		Lease: c.Relay.Lease, Backoff: s.Backoff, MaxAttempts: s.MaxAttempts,
		MaxEvent: int(c.Outbox.MaxEvent), Isolated: c.NATS.MsgIDScope == "isolated",
	}
}

// checkReport is what check found.
type checkReport struct {
	Database string              `json:"database"`
	Errors   int                 `json:"errors"`
	Warnings int                 `json:"warnings"`
	Unknown  int                 `json:"unknown"`
	Findings []jetstream.Finding `json:"findings"`
}

// printFindings prints findings and returns errFindings if one is an error.
func (a *app) printFindings(c *config, findings []jetstream.Finding) error {
	count := map[jetstream.Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
	}
	r := checkReport{
		Database: c.Outbox.Path, Findings: append([]jetstream.Finding{}, findings...),
		Errors: count[jetstream.SeverityError], Warnings: count[jetstream.SeverityWarning], Unknown: count[jetstream.SeverityUnknown],
	}
	var err error
	if a.json {
		err = a.printJSON(r)
	} else {
		err = a.printf("%s", r.text())
	}
	if err == nil && r.Errors > 0 {
		err = errFindings
	}
	return err
}

// text is the report for a person.
func (r *checkReport) text() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s: %s: %s\n", f.Severity, printable(f.Subject), oneLine(f.Problem))
		if f.Why != "" {
			fmt.Fprintf(&b, "  why: %s\n", oneLine(f.Why))
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "  fix: %s\n", oneLine(f.Fix))
		}
	}
	fmt.Fprintf(&b, "%s: %d errors, %d warnings, %d unknown\n", printable(r.Database), r.Errors, r.Warnings, r.Unknown)
	return b.String()
}
