package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
)

// showReport is one row whole, and where it goes.
type showReport struct {
	exportLine
	MessageID string `json:"message_id,omitempty"`
	Route     string `json:"route,omitempty"`           // the route's template; only with --config
	Subject   string `json:"publish_subject,omitempty"` // likewise
	Routing   string `json:"routing_error,omitempty"`   // why there is none
	Why       string `json:"why"`
	Next      string `json:"next"`
}

func (a *app) showCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "show ROW",
		Short: "Show one event, its delivery, and why it is where it is",
		Long: `show prints one event with its delivery, says in words why it is where it is, and
what happens next. With --config it also says which subject the event goes to.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one row, as relay list shows it")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			rows, err := rowIDs(args)
			if err != nil {
				return err
			}
			return a.show(cmd.Context(), rows[0])
		},
	}
	return a.withDB(c)
}

func (a *app) show(ctx context.Context, row int64) error {
	c, store, handle, err := a.open(ctx, reads)
	if err != nil {
		return err
	}
	defer store.Close()
	e, err := handle.Get(ctx, row)
	if errors.Is(err, outbox.ErrNotFound) {
		return fmt.Errorf("row %d: no such row in %s", row, c.Outbox.Path)
	}
	if err != nil {
		return err
	}
	due, err := handle.Due(ctx)
	if err != nil {
		return err
	}
	r := showReport{exportLine: newExportLine(&e)}
	r.Why, r.Next = r.explain(due.Now)
	if e.DecodeErr == nil {
		if err := r.address(&c, &e.Event); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(r)
	}
	return a.printf("%s", r.text(due.Now, &e.Event))
}

// address says where the event goes.
func (r *showReport) address(c *config, e *outbox.Event) error {
	r.MessageID = e.MessageID()
	if c.NATS.MsgIDScope == "isolated" {
		r.MessageID = e.IsolatedMessageID()
	}
	if len(c.Routes) == 0 {
		return nil
	}
	routes, err := relay.NewRoutes(c.Routes)
	if err != nil {
		return err
	}
	i := routes.Match(e.Tenant, e.Stream)
	if i < 0 {
		r.Routing = "no [[route]] takes this stream and tenant"
		return nil
	}
	r.Route = routes.At(i).Subject
	if r.Subject, err = routes.Subject(i, e); err != nil {
		r.Routing = err.Error()
	}
	return nil
}

// text is the report for a person.
func (r *showReport) text(now time.Time, e *outbox.Event) string {
	var b strings.Builder
	w := newTable(&b)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	stamp := func(name string, t *time.Time) {
		if t != nil {
			line(name, t.UTC().Format("2006-01-02T15:04:05.000000Z07:00")+relative(now, *t))
		}
	}
	line("row", fmt.Sprint(r.Row))
	line("state", r.State)
	line("why", r.Why)
	line("next", r.Next)
	line("tenant", printable(r.Tenant))
	line("stream", printable(r.Stream))
	stamp("enqueued", r.EnqueuedAt)
	if r.State == string(outbox.Pending) {
		stamp("due", r.AvailableAt)
	}
	line("attempts", fmt.Sprint(r.Attempts))
	line("claimed by", printable(r.ClaimedBy))
	stamp("lease ends", r.ClaimExpires)
	if r.FailureCode != "" {
		line("last failure", r.failure())
	}
	stamp("delivered", r.DeliveredAt)
	stamp("quarantined", r.QuarantinedAt)
	line("reason", printable(r.QuarantineReason))
	line("route", printable(r.Route))
	line("subject", printable(r.Subject))
	line("no subject", printable(r.Routing))
	line("message id", r.MessageID)
	r.eventText(line, e)
	_ = w.Flush() // to memory
	return trimLines(b.String())
}

// eventText lists the attributes and the data.
func (r *showReport) eventText(line func(name, value string), e *outbox.Event) {
	line("ce id", printable(e.ID))
	line("ce source", printable(e.Source))
	line("ce type", printable(e.Type))
	line("ce subject", printable(e.Subject))
	if !e.Time.IsZero() {
		line("ce time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	line("ce datacontenttype", printable(e.ContentType))
	line("ce dataschema", printable(e.DataSchema))
	line("ce partitionkey", printable(e.PartitionKey))
	for _, name := range sortedKeys(r.Event.Extensions) {
		x := r.Event.Extensions[name]
		line("ce "+printable(name), fmt.Sprintf("%s (%s)", printable(x.Value), x.Type))
	}
	line("data", dataText(e.Data))
}

// relative is t seen from now, for a person.
func relative(now, t time.Time) string {
	if d := t.Sub(now); d > 0 {
		return " (in " + roughDuration(d) + ")"
	}
	return " (" + roughDuration(now.Sub(t)) + " ago)"
}

// maxShown bounds the data that show prints, in bytes.
const maxShown = 1024

// dataText is data for a person: its size, and its beginning if it is text.
func dataText(d outbox.Data) string {
	if d.Kind() == outbox.DataAbsent {
		return "none"
	}
	b := d.Bytes()
	text := fmt.Sprintf("%s, %s bytes", dataKinds[d.Kind()], humanize.Comma(int64(len(b))))
	shown := b[:min(len(b), maxShown)]
	for len(shown) < len(b) && len(shown) > 0 && !utf8.RuneStart(b[len(shown)]) {
		shown = shown[:len(shown)-1]
	}
	switch {
	case len(b) == 0:
		return text
	case !utf8.Valid(shown) || strings.ContainsFunc(string(shown), unprintable):
		return text + ", not text; --json has it in base64"
	case len(shown) < len(b):
		return text + ", beginning " + string(shown) + "…"
	}
	return text + ": " + string(shown)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
