package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// StreamStats counts one stream's rows.
type StreamStats struct {
	Stream                        string
	Pending, Claimed, Quarantined int64
	OldestPending                 time.Time // earliest enqueued_at of a pending row; zero: none
}

// Stats is a consistent picture of the outbox.
type Stats struct {
	Now                                      time.Time     // the database's clock
	Pending, Claimed, Delivered, Quarantined int64         // Delivered -1: not counted
	Expired                                  int64         // claimed rows whose lease has ended
	FarLeases                                int64         // claimed rows whose lease ends later than the longest lease allows
	Orphans                                  int64         // -1: not counted
	OldestPending                            time.Time     // enqueued_at of the oldest pending row; zero: none
	NextDue                                  time.Time     // earliest available_at of a pending row, past or future; zero: none
	Streams                                  []StreamStats // by name; of each state the 10,000 streams with the most rows
	QuarantineByCode                         map[string]int64
}

// Stats counts in one read transaction, without the writer slot. Its cost is that
// of [Handle.Backlog], plus one scan of an index, or for a handle of one tenant of
// the deliveries, for the rows that are delivered.
//
// Orphans is the number of events less that of deliveries: it is exact as long as
// every delivery has its event, which Check verifies. A row in no known state
// counts as delivered.
func (h *Handle) Stats(ctx context.Context) (Stats, error) {
	return h.count(ctx, "stats", (*counter).states, (*counter).streams, (*counter).codes, (*counter).rest)
}

// Backlog is Stats without the rows that are delivered: Delivered and Orphans are
// -1. Its cost grows with the other rows alone (each one's event is looked up for its
// stream: about a second for a million), whatever the history; next to nothing where all
// is delivered. So it may be called every few seconds, less often as the backlog
// grows. In a file without the relay's own indexes it reads all deliveries for the
// quarantined ones.
func (h *Handle) Backlog(ctx context.Context) (Stats, error) {
	return h.count(ctx, "backlog", (*counter).states, (*counter).streams, (*counter).codes)
}

// count counts in parts, all at one moment.
func (h *Handle) count(ctx context.Context, op string, parts ...func(*counter) error) (Stats, error) {
	var s Stats
	err := h.store.read(ctx, op, func(ctx context.Context, t *txn) error {
		c, err := h.counter(ctx, t)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if err := part(c); err != nil {
				return err
			}
		}
		s = c.Stats
		return nil
	})
	return s, err
}

// counter fills a Stats, one transaction long.
type counter struct {
	Stats
	handle  *Handle
	ctx     context.Context
	t       *txn
	indexes *indexes
	tenants string // a JSON array: to be counted one by one
}

func (h *Handle) counter(ctx context.Context, t *txn) (*counter, error) {
	c := &counter{Stats: Stats{Now: t.at, Delivered: -1, Orphans: -1}, handle: h, ctx: ctx, t: t}
	var err error
	if c.indexes, err = h.store.indexes(ctx, t); err != nil {
		return c, err
	}
	if h.tenant == "" && c.indexes.byTenant {
		list, err := c.indexes.tenants(ctx, t)
		if err != nil {
			return c, err
		}
		b, err := json.Marshal(list)
		if err != nil {
			return c, err
		}
		c.tenants = string(b)
	}
	return c, nil
}

// from is deliveries d in a state, by the index that has them, as a FROM and a
// WHERE clause with join between the two.
func (c *counter) from(s State, join string) string {
	arms := c.indexes.all
	if c.handle.tenant != "" || c.tenants != "" {
		arms = c.indexes.tenant
	}
	index := map[State]string{Pending: arms.due, InClaim: arms.expiry, Quarantined: arms.quarantined}[s]
	scope := ""
	switch {
	case c.handle.tenant != "":
		scope = ` AND d.tenant_id = ?1`
	case c.tenants != "":
		scope = ` AND d.tenant_id IN (SELECT value FROM json_each(?1))`
	}
	return fmt.Sprintf(` FROM dovecote_deliveries d %s%s WHERE d.state = '%s'%s`, index, join, s, scope)
}

// args are the arguments of from.
func (c *counter) args() []any {
	switch {
	case c.handle.tenant != "":
		return []any{c.handle.tenant}
	case c.tenants != "":
		return []any{c.tenants}
	}
	return nil
}

const (
	// Forms of their own, for SQLite counts and finds an extreme by an index faster
	// when it is asked for nothing else.
	countSQL  = `SELECT count(*)`
	oldestSQL = `SELECT CAST(e.enqueued_at AS TEXT) FROM dovecote_events e WHERE e.row_id = (SELECT min(d.event_row_id)%s)`
	nextSQL   = `SELECT CAST(min(d.available_at) AS TEXT)`
	leasesSQL = `SELECT count(*), coalesce(sum(d.claim_expires_at <= '%s'), 0), coalesce(sum(d.claim_expires_at > '%s'), 0)`
)

// states counts by state and reads the oldest and the next pending row.
func (c *counter) states() error {
	pending := c.from(Pending, "")
	for _, q := range []struct {
		dest  *int64
		query string
	}{
		{&c.Pending, countSQL + pending},
		{&c.Quarantined, countSQL + c.from(Quarantined, "")},
	} {
		if err := c.t.queryRow(c.ctx, q.query, c.args()...).Scan(q.dest); err != nil {
			return err
		}
	}
	leases := fmt.Sprintf(leasesSQL, c.t.now, formatTime(c.t.at.Add(maxLease)))
	err := c.t.queryRow(c.ctx, leases+c.from(InClaim, ""), c.args()...).Scan(&c.Claimed, &c.Expired, &c.FarLeases)
	if err != nil || c.Pending == 0 {
		return err
	}
	if c.OldestPending, err = c.time(fmt.Sprintf(oldestSQL, pending)); err != nil {
		return err
	}
	c.NextDue, err = c.time(nextSQL + pending)
	return err
}

// time reads a stored time; zero if there is none, or if it is of no known form.
func (c *counter) time(query string) (time.Time, error) {
	rows, err := c.t.query(c.ctx, query, c.args()...)
	if err != nil {
		return time.Time{}, err
	}
	defer rows.Close()
	var text sql.NullString
	if rows.Next() {
		if err := rows.Scan(&text); err != nil {
			return time.Time{}, err
		}
	}
	t, _ := parseTime(text.String)
	return t, rows.Err()
}

// streamsSQL joins each delivery with its event. lookUpSQL looks them up instead,
// for statistics with which SQLite would go through all events in the join.
const (
	streamsSQL   = `SELECT CAST(coalesce(e.stream, '') AS TEXT), count(*), CAST(min(e.enqueued_at) AS TEXT)`
	joinEventSQL = ` LEFT JOIN dovecote_events e ON e.row_id = d.event_row_id`
	lookUpSQL    = `SELECT CAST(coalesce((SELECT e.stream` + itsEventSQL + `, '') AS TEXT), count(*), CAST(min((SELECT e.enqueued_at` + itsEventSQL + `) AS TEXT)`
	itsEventSQL  = ` FROM dovecote_events e WHERE e.row_id = d.event_row_id)`
	largestSQL   = ` GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10000` // no more are kept, whatever producers use as names
)

// byStream is the query that counts the rows in a state by stream.
func (c *counter) byStream(s State) (string, error) {
	query := streamsSQL + c.from(s, joinEventSQL) + largestSQL
	steps, err := c.t.plan(c.ctx, query)
	if slices.Contains(steps, "SCAN e LEFT-JOIN") {
		query = lookUpSQL + c.from(s, "") + largestSQL
	}
	return query, err
}

// streams counts by stream.
func (c *counter) streams() error {
	streams := make(map[string]*StreamStats)
	for _, state := range []State{Pending, InClaim, Quarantined} {
		query, err := c.byStream(state)
		if err != nil {
			return err
		}
		err = c.each(func(scan func(...any) error) error {
			var name string
			var n int64
			var oldest sql.NullString
			if err := scan(&name, &n, &oldest); err != nil {
				return err
			}
			s := streams[name]
			if s == nil {
				s = &StreamStats{Stream: name}
				streams[name] = s
			}
			switch state {
			case Pending:
				s.Pending = n
				s.OldestPending, _ = parseTime(oldest.String)
			case InClaim:
				s.Claimed = n
			case Quarantined:
				s.Quarantined = n
			}
			return nil
		}, query)
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		c.Streams = append(c.Streams, *streams[name])
	}
	return nil
}

// codes counts quarantined rows by code.
func (c *counter) codes() error {
	c.QuarantineByCode = make(map[string]int64)
	return c.each(func(scan func(...any) error) error {
		var code string
		var n int64
		err := scan(&code, &n)
		c.QuarantineByCode[code] = n
		return err
	}, `SELECT `+quarantineCodeSQL+`, count(*)`+c.from(Quarantined, "")+` GROUP BY 1`)
}

// each calls row for every row of a query.
func (c *counter) each(row func(scan func(...any) error) error, query string) error {
	rows, err := c.t.query(c.ctx, query, c.args()...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

const restSQL = `SELECT (SELECT count(*) FROM dovecote_deliveries d WHERE 1 = 1%s), (SELECT count(*) FROM dovecote_events e WHERE 1 = 1%s)`

// rest counts delivered rows and orphans, from the sums of both tables.
func (c *counter) rest() error {
	deliveries, tenant := c.handle.scope("d.tenant_id")
	events, _ := c.handle.scope("e.tenant_id")
	var d, e int64
	if err := c.t.queryRow(c.ctx, fmt.Sprintf(restSQL, deliveries, events), append(tenant, tenant...)...).Scan(&d, &e); err != nil {
		return err
	}
	c.Delivered = d - c.Pending - c.Claimed - c.Quarantined
	c.Orphans = max(e-d, 0)
	return nil
}
