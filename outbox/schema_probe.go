package outbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// values is a row by column. A column that is not named is left to its default.
type values map[string]any

func (v values) with(other values) values {
	w := maps.Clone(v)
	maps.Copy(w, other)
	return w
}

// probe is a row that differs in one point from one that is in order. name is
// what must refuse (or accept) it.
type probe struct {
	name   string
	change values
}

// chars is a text of n bytes in two-byte characters (and one more where n is
// odd), so that a constraint that counts characters is not taken for one
// that counts bytes.
func chars(n int) string { return strings.Repeat("é", n/2) + strings.Repeat("e", n%2) }

const probeTime = "2024-01-02T03:04:05.678000Z"

var probeEvent = values{
	"tenant_id": "Tenant", "stream": "Stream", "specversion": "1.0",
	"source": "/Source", "event_type": "Type", "subject": nil, "occurred_at": probeTime,
	"datacontenttype": "text/plain", "dataschema": nil, "partitionkey": nil,
	"extensions": "{}", "data_kind": "binary", "data": []byte("x"), "enqueued_at": probeTime,
}

var acceptedEvents = []probe{
	{"an event with every text at its longest", values{
		"tenant_id": chars(255), "stream": chars(255), "source": chars(1024), "event_id": chars(1024), "event_type": chars(1024),
		"subject": chars(2048), "datacontenttype": chars(255), "dataschema": chars(2048), "partitionkey": chars(255),
	}},
	{"an event with the longest source", values{"source": chars(2047), "event_id": "i"}},
	{"an event without data", values{"data": nil, "data_kind": nil, "datacontenttype": nil}},
	{"an event with empty data", values{"data": []byte{}, "data_kind": "json", "datacontenttype": nil}},
	{"an event with JSON data", values{"data": []byte("{}"), "data_kind": "json"}},
}

var refusedEvents = []probe{
	{"CHECK (row_id > 0)", values{"row_id": 0}},
	{"CHECK (row_id > 0)", values{"row_id": -1}},
	{"CHECK (tenant_id is not empty)", values{"tenant_id": ""}},
	{"CHECK (tenant_id has at most 255 bytes)", values{"tenant_id": chars(256)}},
	{"CHECK (stream has at most 255 bytes)", values{"stream": chars(256)}},
	{"CHECK (specversion = '1.0')", values{"specversion": "1.1"}},
	{"CHECK (event_id has at most 1024 bytes)", values{"event_id": chars(1025)}},
	{"CHECK (source has at most 2048 bytes)", values{"source": chars(2049), "event_id": ""}},
	{"CHECK (source and event_id have at most 2048 bytes together)", values{"source": chars(1025), "event_id": chars(1024)}},
	{"CHECK (event_type has at most 1024 bytes)", values{"event_type": chars(1025)}},
	{"CHECK (subject has at most 2048 bytes)", values{"subject": chars(2049)}},
	{"CHECK (datacontenttype has at most 255 bytes)", values{"datacontenttype": chars(256)}},
	{"CHECK (dataschema has at most 2048 bytes)", values{"dataschema": chars(2049)}},
	{"CHECK (partitionkey has at most 255 bytes)", values{"partitionkey": chars(256)}},
	{"CHECK (data_kind is 'json' or 'binary')", values{"data_kind": "xml"}},
	{"CHECK (data_kind is NULL when data is)", values{"data": nil}},
	{"CHECK (data is NULL when data_kind is)", values{"data_kind": nil}},
	{"CHECK (non-empty data needs datacontenttype)", values{"datacontenttype": nil}},
}

// Events that are different from the first one of an identity, or not.
var distinctIdentities = []probe{
	{"an identity that differs in tenant_id", values{"tenant_id": "Other"}},
	{"an identity that differs in source", values{"source": "/Other"}},
	{"an identity that differs in event_id", values{"event_id": "Other"}},
	{"an identity that differs in the case of tenant_id", values{"tenant_id": "TENANT"}},
	{"an identity that differs in the case of source", values{"source": "/SOURCE"}},
	{"an identity that differs in the case of event_id", values{"event_id": "IDENTITY"}},
	{"an identity that differs in a blank at the end", values{"event_id": "Identity "}},
}

// probeEvents tries out what dovecote_events accepts and refuses.
func (c *schemaCopy) probeEvents(ctx context.Context) {
	p := prober{schemaCopy: c, table: "dovecote_events", key: "row_id"}
	c.must(ctx, `PRAGMA foreign_keys = OFF`)
	if !p.accepts(ctx, "a valid event", probeEvent.with(values{"event_id": "base"})) {
		return // then no refusal proves anything
	}
	for i, a := range acceptedEvents {
		p.accepts(ctx, a.name, probeEvent.with(values{"event_id": fmt.Sprint("accepted-", i)}).with(a.change))
	}
	for i, r := range refusedEvents {
		p.refuses(ctx, r.name, probeEvent.with(values{"event_id": fmt.Sprint("refused-", i)}).with(r.change))
	}
	first := probeEvent.with(values{"event_id": "Identity"})
	p.accepts(ctx, "a valid event", first)
	p.refuses(ctx, "the unique identity (tenant_id, source, event_id)", first)
	for _, d := range distinctIdentities {
		p.accepts(ctx, d.name, first.with(d.change))
	}
	p.binary(ctx, map[string][2]string{
		"tenant_id": {"tenant", "Tenant  "}, "stream": {"stream", "Stream  "}, "event_type": {"type", "Type  "},
		"event_id": {"identity", "Identity  "}, "source": {"/source", "/Source  "},
		"enqueued_at": {strings.ToLower(probeTime), probeTime + " "},
	})
	p.autoIncrement(ctx)
	p.defaults(ctx, values{
		"tenant_id": "Tenant", "stream": "Stream", "specversion": "1.0", "event_id": "defaults", "source": "/Source", "event_type": "Type",
	}, "extensions", "enqueued_at")
}

const claimToken = "0123456789abcdef"

var probeDelivery = values{
	"tenant_id": "Tenant", "available_at": probeTime, "attempts": 0, "last_failure_code": nil, "last_failure_detail": nil,
}

// stateColumns are the columns that belong to states, with a value that fits.
var stateColumns = []struct {
	column string
	state  State
	value  any
}{
	{"claim_token", InClaim, []byte(claimToken)},
	{"claimed_by", InClaim, "Worker"},
	{"claim_expires_at", InClaim, probeTime},
	{"delivered_at", Delivered, probeTime},
	{"quarantined_at", Quarantined, probeTime},
	{"quarantine_reason", Quarantined, "Reason"},
}

// inState is a delivery in s that is in order.
func inState(s State) values {
	v := probeDelivery.with(values{"state": string(s)})
	for _, sc := range stateColumns {
		v[sc.column] = nil
		if sc.state == s {
			v[sc.column] = sc.value
		}
	}
	return v
}

var refusedDeliveries = []struct {
	state State
	probe
}{
	{Pending, probe{"CHECK (state is a known one)", values{"state": "sent"}}},
	{Pending, probe{"CHECK (attempts >= 0)", values{"attempts": -1}}},
	{InClaim, probe{"CHECK (claim_token has 16 bytes)", values{"claim_token": []byte(claimToken[1:])}}},
	{InClaim, probe{"CHECK (claim_token has 16 bytes)", values{"claim_token": []byte(claimToken + "x")}}},
	{InClaim, probe{"CHECK (claimed_by has at most 255 bytes)", values{"claimed_by": chars(256)}}},
	{Pending, probe{"CHECK (last_failure_code has at most 128 bytes)", values{"last_failure_code": chars(129), "last_failure_detail": ""}}},
	{Pending, probe{"CHECK (last_failure_detail has at most 2048 bytes)", values{"last_failure_code": "c", "last_failure_detail": chars(2049)}}},
	{Pending, probe{"CHECK (last_failure_code needs last_failure_detail)", values{"last_failure_code": "c"}}},
	{Pending, probe{"CHECK (last_failure_detail needs last_failure_code)", values{"last_failure_detail": "d"}}},
	{Quarantined, probe{"CHECK (quarantine_reason has at most 2048 bytes)", values{"quarantine_reason": chars(2049)}}},
}

// probeDeliveries tries out what dovecote_deliveries accepts and refuses.
// Foreign keys come last, so that they answer for no CHECK.
func (c *schemaCopy) probeDeliveries(ctx context.Context) {
	p := prober{schemaCopy: c, table: "dovecote_deliveries", key: "event_row_id"}
	c.must(ctx, `PRAGMA foreign_keys = OFF`)
	n := 0
	next := func(s State) values {
		n++
		return inState(s).with(values{"event_row_id": n})
	}
	for _, s := range states {
		if !p.accepts(ctx, fmt.Sprintf("a %s delivery", s), next(s)) {
			return
		}
	}
	p.accepts(ctx, "a delivery with the longest worker", next(InClaim).with(values{"claimed_by": chars(255)}))
	p.accepts(ctx, "a delivery with every text at its longest", next(Quarantined).with(values{
		"tenant_id": chars(255), "quarantine_reason": chars(2048), "last_failure_code": chars(128), "last_failure_detail": chars(2048),
	}))
	for _, r := range refusedDeliveries {
		p.refuses(ctx, r.name, next(r.state).with(r.change))
	}
	for _, s := range states {
		for _, sc := range stateColumns {
			name, value := "has no", sc.value
			if sc.state == s {
				name, value = "has a", nil
			}
			p.refuses(ctx, fmt.Sprintf("CHECK (a %s row %s %s)", s, name, sc.column), next(s).with(values{sc.column: value}))
		}
	}
	p.refuses(ctx, "one delivery for each event", inState(Pending).with(values{"event_row_id": 1}))
	p.binary(ctx, map[string][2]string{
		"tenant_id": {"tenant", "Tenant  "}, "state": {"Pending", "pending "},
		"available_at": {strings.ToLower(probeTime), probeTime + " "},
	})
	p.defaults(ctx, values{"event_row_id": n + 1, "tenant_id": "Tenant", "state": "pending"}, "available_at", "attempts")
	p.foreignKey(ctx)
}

var states = []State{Pending, InClaim, Delivered, Quarantined}

// foreignKey tries out the foreign key, on a delivery table that it empties.
func (p *prober) foreignKey(ctx context.Context) {
	p.must(ctx, `DELETE FROM dovecote_deliveries`)
	p.must(ctx, `PRAGMA foreign_keys = ON`)
	id, err := p.insert(ctx, "dovecote_events", probeEvent.with(values{"event_id": "parent"}))
	if err != nil {
		return // said of the events already
	}
	const constraint = "the foreign key to dovecote_events (tenant_id, row_id)"
	p.refuses(ctx, constraint, inState(Pending).with(values{"event_row_id": id + 1}))
	p.refuses(ctx, constraint, inState(Pending).with(values{"event_row_id": id, "tenant_id": "Other"}))
	p.accepts(ctx, "a delivery of an event", inState(Pending).with(values{"event_row_id": id}))
}

// prober writes to one table of the copy.
type prober struct {
	*schemaCopy
	table, key string
}

func (p *prober) insert(ctx context.Context, table string, v values) (int64, error) {
	columns := slices.Sorted(maps.Keys(v))
	args := make([]any, len(columns))
	for i, column := range columns {
		args[i] = v[column]
	}
	query := fmt.Sprintf(`INSERT INTO %s (%s) VALUES (%s)`,
		table, strings.Join(columns, ", "), strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", "))
	stmt := p.inserts[query]
	if stmt == nil {
		var err error
		if stmt, err = p.conn.PrepareContext(ctx, query); err != nil {
			return 0, err
		}
		p.inserts[query] = stmt
	}
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	if n, err := res.RowsAffected(); err == nil && n != 1 {
		return 0, fmt.Errorf("%d rows inserted", n)
	}
	return res.LastInsertId()
}

func (p *prober) accepts(ctx context.Context, what string, v values) bool {
	_, err := p.insert(ctx, p.table, v)
	if err != nil && ctx.Err() == nil {
		p.problem("%s: %s is refused: %v", p.table, what, err)
	}
	p.interrupted(ctx)
	return err == nil
}

// refuses finds a row that should have been refused, and takes it out again.
func (p *prober) refuses(ctx context.Context, constraint string, v values) {
	id, err := p.insert(ctx, p.table, v)
	p.interrupted(ctx)
	if err != nil {
		return
	}
	if s := fmt.Sprintf("%s: %s is missing", p.table, constraint); !slices.Contains(p.problems, s) {
		p.problems = append(p.problems, s)
	}
	key, ok := v[p.key]
	if !ok {
		key = id
	}
	_, err = p.conn.ExecContext(ctx, fmt.Sprintf(`DELETE FROM %s WHERE %s IS ?`, p.table, p.key), key)
	p.failed(err)
}

// failed records an error that is no finding.
func (c *schemaCopy) failed(err error) {
	if err != nil && c.err == nil {
		c.err = &SQLError{"check schema copy", err}
	}
}

// interrupted turns the end of ctx into the copy's error.
func (p *prober) interrupted(ctx context.Context) {
	p.failed(ctx.Err())
}

// binary finds columns that do not compare byte by byte: predicates on them
// would match too much. near has, by column, texts that no row holds but that
// other collations take for one that a row does hold.
func (p *prober) binary(ctx context.Context, near map[string][2]string) {
	for _, column := range slices.Sorted(maps.Keys(near)) {
		p.each(ctx, func(scan func(...any) error) error {
			var n int
			err := scan(&n)
			if n > 0 {
				p.problem("%s.%s: its collation is not BINARY", p.table, column)
			}
			return err
		}, fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s IN (?, ?)`, p.table, column), near[column][0], near[column][1])
	}
}

// autoIncrement finds row ids that would be handed out twice.
func (p *prober) autoIncrement(ctx context.Context) {
	first, err := p.insert(ctx, p.table, probeEvent.with(values{"event_id": "auto-1"}))
	if err == nil {
		p.must(ctx, fmt.Sprintf(`DELETE FROM dovecote_events WHERE row_id = %d`, first))
		var again int64
		if again, err = p.insert(ctx, p.table, probeEvent.with(values{"event_id": "auto-2"})); err == nil && again > first {
			return
		}
	}
	p.problem("dovecote_events.row_id: AUTOINCREMENT is missing")
}

// defaults finds missing or wrong defaults: the columns are read back from a row
// that was written without them.
func (p *prober) defaults(ctx context.Context, v values, columns ...string) {
	if _, err := p.insert(ctx, p.table, v); err != nil {
		p.problem("%s: a row that leaves %s to their defaults is refused: %v", p.table, strings.Join(columns, " and "), err)
		return
	}
	for _, column := range columns {
		p.each(ctx, func(scan func(...any) error) error {
			var got string
			var now bool
			err := scan(&got, &now)
			if err == nil && !goodDefault(column, got, now) {
				p.problem("%s.%s: default is %q, want %s", p.table, column, got, wantDefaults[column])
			}
			return err
		}, fmt.Sprintf(defaultSQL, column, p.table, p.key))
	}
}

// defaultSQL reads a column of the newest row, and whether it is a time close to
// now.
const defaultSQL = `
SELECT coalesce(%[1]s, 'NULL'), coalesce(abs(julianday(%[1]s) - julianday('now')) * 1440 < 1, 0)
FROM %[2]s ORDER BY %[3]s DESC LIMIT 1`

var wantDefaults = map[string]string{
	"extensions":   "{}",
	"attempts":     "0",
	"enqueued_at":  "the database's time as YYYY-MM-DDTHH:MM:SS.ffffffZ",
	"available_at": "the database's time as YYYY-MM-DDTHH:MM:SS.ffffffZ",
}

func goodDefault(column, got string, now bool) bool {
	switch column {
	case "enqueued_at", "available_at":
		_, err := time.Parse("2006-01-02T15:04:05.000000Z", got)
		return err == nil && now
	}
	return got == wantDefaults[column]
}
