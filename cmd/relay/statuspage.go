package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
)

//go:embed statuspage.html
var statusPageHTML string

// statusPageTemplate escapes whatever an event's fields may hold.
var statusPageTemplate = template.Must(template.New("status").Parse(statusPageHTML))

// pagePolicy lets the page load nothing, run nothing and be framed by nobody.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageStreams bounds the table of streams, longest waiting first.
const pageStreams = 20

// statusPage is the page at / of the metrics listener: read-only, one document
// without script, which reloads itself.
func (d *daemon) statusPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var page bytes.Buffer
		v, _ := buildVersion()
		data := newPageData(d.relay.Snapshot(), d.publisher.Missing(), time.Now())
		data.Database, data.Worker, data.Version = d.config.Outbox.Path, d.config.worker(), v
		if err := statusPageTemplate.Execute(&page, data); err != nil {
			answer(w, http.StatusInternalServerError, err.Error())
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		w.Write(page.Bytes()) // the client may be gone
	})
}

// pageData is what the page shows, ready to print.
type pageData struct {
	Database, Worker, Version, Now string
	Troubles                       []string
	Counts                         []figure
	Flow                           []figure
	Charts                         []chart
	Streams                        []pageStream
	MoreStreams                    int
	Broker                         string
	BrokerDown                     bool
	Routes                         []pageRoute
	Codes                          []figure
	Quarantines                    []pageQuarantine
}

type figure struct{ Name, Value string }

type pageStream struct{ Name, Pending, Claimed, Quarantined, Oldest string }

type pageRoute struct {
	Name, State string
	Paused      bool
}

type pageQuarantine struct {
	At, Stream, Code, Reason string
	Row                      int64
}

func newPageData(s relay.Snapshot, missing []string, now time.Time) pageData {
	p := pageData{
		Now:      now.UTC().Format(time.RFC3339),
		Troubles: append(troubles(s, now), withoutStream(s, missing)...),
		Flow: []figure{
			{"published since start", humanize.Comma(int64(s.Published))},
			{"rate, last minute", humanize.FormatFloat("#,###.#", s.Rate) + " /s"},
			{"lag p50, last minute", lagText(s.LagP50)},
			{"lag p99, last minute", lagText(s.LagP99)},
			{"in flight", humanize.Comma(int64(s.InFlight))},
			{"oldest pending", ageText(s.OldestAge)},
		},
		Charts: charts(s.Samples),
		Broker: "usable",
	}
	if s.BreakerOpen {
		p.BrokerDown = true
		p.Broker = fmt.Sprintf("not usable since %s: %s; nothing is claimed, every event waits",
			s.BreakerSince.UTC().Format(time.TimeOnly), s.BreakerWhy)
	}
	p.addCounts(s.Counted)
	for _, r := range s.Routes {
		row := pageRoute{Name: r.Name, State: "open"}
		if r.Paused {
			row.Paused = true
			row.State = fmt.Sprintf("paused since %s [%s]: %s", r.Since.UTC().Format(time.TimeOnly), r.Code, r.Why)
		}
		p.Routes = append(p.Routes, row)
	}
	for _, q := range s.Quarantines {
		p.Quarantines = append(p.Quarantines, pageQuarantine{
			At: q.At.UTC().Format(time.DateTime), Row: q.Row, Stream: q.Stream, Code: q.Code, Reason: q.Reason})
	}
	return p
}

// addCounts fills in the last count of the rows, if there has been one.
func (p *pageData) addCounts(c *outbox.Stats) {
	if c == nil {
		p.Counts = []figure{{"pending", "not counted yet"}}
		return
	}
	p.Counts = []figure{
		{"pending", humanize.Comma(c.Pending)},
		{"claimed", humanize.Comma(c.Claimed)},
		{"quarantined", humanize.Comma(c.Quarantined)},
		{"expired leases", humanize.Comma(c.Expired)},
	}
	if c.Delivered >= 0 {
		p.Counts = append(p.Counts, figure{"delivered", humanize.Comma(c.Delivered)})
	}
	streams := longestWaiting(c.Streams)
	p.MoreStreams = max(len(streams)-pageStreams, 0)
	for _, s := range streams[:min(len(streams), pageStreams)] {
		row := pageStream{s.Stream, humanize.Comma(s.Pending), humanize.Comma(s.Claimed), humanize.Comma(s.Quarantined), "-"}
		if !s.OldestPending.IsZero() {
			row.Oldest = ageText(c.Now.Sub(s.OldestPending))
		}
		p.Streams = append(p.Streams, row)
	}
	for _, code := range sortedKeys(c.QuarantineByCode) {
		p.Codes = append(p.Codes, figure{code, humanize.Comma(c.QuarantineByCode[code])})
	}
}

func ageText(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return roughDuration(d)
}

func lagText(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// The size of a chart in its own units.
const (
	chartWidth  = 320
	chartHeight = 70
)

// chart is a line over the samples.
type chart struct {
	Title, Top, Now string
	Lines           []template.HTMLAttr // points attributes of polylines
}

// charts draws the last minutes. The last sample is still growing, so it is left out.
func charts(samples []relay.Sample) []chart {
	if len(samples) < 3 {
		return nil
	}
	samples = samples[:len(samples)-1]
	series := func(value func(relay.Sample) float64) []float64 {
		list := make([]float64, len(samples))
		for i, s := range samples {
			list[i] = value(s)
		}
		return list
	}
	perSecond := func(v float64) string { return humanize.FormatFloat("#,###.#", v) + " /s" }
	seconds := func(v float64) string { return lagText(time.Duration(v * float64(time.Second))) }
	count := func(v float64) string { return humanize.Comma(int64(v)) }
	return []chart{
		draw("published", perSecond,
			series(func(s relay.Sample) float64 { return float64(s.Accepted) / relay.SamplePeriod.Seconds() })),
		draw("lag p99 and p50", seconds,
			series(func(s relay.Sample) float64 { return s.LagP99.Seconds() }),
			series(func(s relay.Sample) float64 { return s.LagP50.Seconds() })),
		draw("pending", count,
			series(func(s relay.Sample) float64 { return math.Max(float64(s.Backlog), 0) })),
	}
}

func draw(title string, text func(float64) string, lines ...[]float64) chart {
	top := 0.0
	for _, line := range lines {
		for _, v := range line {
			top = math.Max(top, v)
		}
	}
	c := chart{Title: title, Top: text(top), Now: text(lines[0][len(lines[0])-1])}
	for _, line := range lines {
		var points strings.Builder
		for i, v := range line {
			y := chartHeight - 1.0
			if top > 0 {
				y -= v / top * (chartHeight - 2)
			}
			fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*chartWidth/float64(len(line)-1), y)
		}
		c.Lines = append(c.Lines, template.HTMLAttr(`points="`+strings.TrimSpace(points.String())+`"`))
	}
	return c
}

// longestWaiting sorts a copy of the streams, those with the oldest pending event first.
func longestWaiting(streams []outbox.StreamStats) []outbox.StreamStats {
	sorted := slices.Clone(streams)
	slices.SortStableFunc(sorted, func(a, b outbox.StreamStats) int {
		if a.OldestPending.IsZero() != b.OldestPending.IsZero() {
			if a.OldestPending.IsZero() {
				return 1
			}
			return -1
		}
		return a.OldestPending.Compare(b.OldestPending)
	})
	return sorted
}
