//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/integration/workload"
)

const streamName = "EVENTS"

// arrivals counts what the consumer receives.
type arrivals struct{ n atomic.Int64 }

// consume starts a consumer that prints the first messages and then a few more.
func consume(ctx context.Context, js jetstream.JetStream) (*arrivals, error) {
	c, err := js.OrderedConsumer(ctx, streamName, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	a := &arrivals{}
	_, err = c.Consume(func(m jetstream.Msg) {
		if n := a.n.Add(1); n <= 3 || n%250 == 0 {
			fmt.Printf("  %5d  %-15s  %s %s of tenant %s\n",
				n, m.Subject(), m.Headers().Get("ce-type"), m.Headers().Get("ce-id"), m.Headers().Get("Outbox-Tenant"))
		}
	})
	return a, err
}

// wait waits until n messages have arrived.
func (a *arrivals) wait(ctx context.Context, n int) error {
	for end := time.Now().Add(patience); a.n.Load() < int64(n); {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d events arrived within %v", a.n.Load(), n, patience)
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// summary is what the file and the stream hold in the end.
type summary struct {
	report     workload.Report
	inFile     int // orders in the application's own table
	unsettled  int // events that are not delivered
	stored     int // messages in the stream
	duplicates int // messages beyond the first of an event
	missing    int // committed events that the stream does not have
	unexpected int // messages of events that were never committed
	lags       []time.Duration
}

const enqueuedSQL = `
SELECT o.id, e.enqueued_at, d.state = 'delivered'
FROM shop_orders o
JOIN dovecote_events e ON e.tenant_id = o.tenant AND e.source = o.source AND e.event_id = o.id
JOIN dovecote_deliveries d ON d.event_row_id = e.row_id`

// summarize compares the producer's report, its table and the stream.
func summarize(ctx context.Context, path string, js jetstream.JetStream, report workload.Report) (summary, error) {
	s := summary{report: report}
	stored, err := readStream(ctx, js)
	if err != nil {
		return s, err
	}
	db, err := workload.Open(path)
	if err != nil {
		return s, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, enqueuedSQL)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, enqueued string
		var delivered bool
		if err := rows.Scan(&id, &enqueued, &delivered); err != nil {
			return s, err
		}
		s.inFile++
		if !delivered {
			s.unsettled++
		}
		times := stored[id]
		delete(stored, id)
		if len(times) == 0 {
			s.missing++
			continue
		}
		s.stored += len(times)
		s.duplicates += len(times) - 1
		at, err := time.Parse(time.RFC3339, enqueued)
		if err != nil {
			return s, err
		}
		s.lags = append(s.lags, times[0].Sub(at))
	}
	for _, times := range stored {
		s.stored += len(times)
		s.unexpected += len(times)
	}
	slices.Sort(s.lags)
	return s, rows.Err()
}

// readStream returns when each event was stored, by its CloudEvents id.
func readStream(ctx context.Context, js jetstream.JetStream) (map[string][]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := js.Stream(ctx, streamName)
	if err != nil {
		return nil, err
	}
	last := stream.CachedInfo().State.LastSeq
	c, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return nil, err
	}
	messages, err := c.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	stored := map[string][]time.Time{}
	for seq := uint64(0); seq < last; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		seq = meta.Sequence.Stream
		id := m.Headers().Get("ce-id")
		stored[id] = append(stored[id], meta.Timestamp)
	}
	return stored, nil
}

func (s summary) print(took time.Duration) {
	line := func(what string, n int, note string) {
		fmt.Printf("  %-22s %9s   %s\n", what, humanize.Comma(int64(n)), note)
	}
	fmt.Printf("\nsummary after %.1f s\n", took.Seconds())
	line("orders committed", s.report.Committed, "each with its event")
	line("orders rolled back", s.report.RolledBack, "with their events")
	line("events stored", s.stored, "in stream "+streamName)
	line("duplicates", s.duplicates, "")
	fmt.Printf("  %-22s %9s   p50, and p99 %s\n", "lag, enqueue to stored",
		milliseconds(s.percentile(50)), milliseconds(s.percentile(99)))
}

func (s summary) percentile(p int) time.Duration {
	if len(s.lags) == 0 {
		return 0
	}
	return s.lags[min(len(s.lags)*p/100, len(s.lags)-1)]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// verdict is an error that names every number that does not add up.
func (s summary) verdict() error {
	var wrong []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	check(s.report.RolledBack > 0, "nothing was rolled back")
	check(s.inFile == s.report.Committed, "%d orders with events in the file, %d committed", s.inFile, s.report.Committed)
	check(s.missing == 0, "%d committed events are not in the stream", s.missing)
	check(s.unexpected == 0, "%d messages belong to no committed order", s.unexpected)
	check(s.duplicates == 0, "%d duplicates", s.duplicates)
	check(s.unsettled == 0, "%d rows are not delivered", s.unsettled)
	if len(wrong) > 0 {
		return errors.New("the numbers do not add up: " + strings.Join(wrong, "; "))
	}
	fmt.Println("every committed event arrived once, and nothing else did")
	return nil
}
