package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// indexInfo is an index as SQLite reports it. columns are its key columns in
// lower case, "" for an expression; plain: each ascending, collated BINARY.
type indexInfo struct {
	name            string
	unique, partial bool
	columns         []string
	plain           bool
}

// keys reports whether the index is over exactly these columns, in this order.
func (x indexInfo) keys(columns ...string) bool {
	return x.plain && slices.Equal(x.columns, columns)
}

const (
	indexListSQL = `SELECT name, "unique", partial FROM pragma_index_list(?)`
	indexInfoSQL = `SELECT coalesce(lower(name), ''), "desc", coll FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno`
)

func (c *schemaCopy) indexes(ctx context.Context, table string) []indexInfo {
	var indexes []indexInfo
	c.each(ctx, func(scan func(...any) error) error {
		var x indexInfo
		err := scan(&x.name, &x.unique, &x.partial)
		indexes = append(indexes, x)
		return err
	}, indexListSQL, table)
	for i := range indexes {
		x := &indexes[i]
		x.plain = true
		c.each(ctx, func(scan func(...any) error) error {
			var name, collation string
			var desc bool
			if err := scan(&name, &desc, &collation); err != nil {
				return err
			}
			x.columns = append(x.columns, name)
			x.plain = x.plain && !desc && strings.EqualFold(collation, "BINARY")
			return nil
		}, indexInfoSQL, x.name)
	}
	return indexes
}

const foreignKeySQL = `
SELECT id, lower("table"), lower("from"), coalesce(lower("to"), ''), on_delete
FROM pragma_foreign_key_list('dovecote_deliveries') ORDER BY id, seq`

// checkKeys finds missing unique keys and a missing foreign key.
func (c *schemaCopy) checkKeys(ctx context.Context) {
	events := c.indexes(ctx, "dovecote_events")
	unique := func(columns ...string) bool {
		return slices.ContainsFunc(events, func(x indexInfo) bool {
			return x.unique && !x.partial && x.keys(columns...)
		})
	}
	if !unique("tenant_id", "row_id") {
		c.problem("dovecote_events: UNIQUE (tenant_id, row_id) is missing")
	}
	if !unique("tenant_id", "source", "event_id") {
		c.problem("dovecote_events: the unique identity (tenant_id, source, event_id) with BINARY collation is missing")
	}

	keys := make(map[int][]string)
	c.each(ctx, func(scan func(...any) error) error {
		var id int
		var table, from, to, onDelete string
		if err := scan(&id, &table, &from, &to, &onDelete); err != nil {
			return err
		}
		keys[id] = append(keys[id], fmt.Sprintf("%s>%s.%s %s", from, table, to, onDelete))
		return nil
	}, foreignKeySQL)
	want := []string{"event_row_id>dovecote_events.row_id RESTRICT", "tenant_id>dovecote_events.tenant_id RESTRICT"}
	for _, key := range keys {
		if slices.Sort(key); slices.Equal(key, want) {
			return
		}
	}
	c.problem("dovecote_deliveries: FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT is missing")
}

// ownIndex is one of our own indexes of dovecote_deliveries.
type ownIndex struct {
	name    string
	columns []string
	state   State // the partial index's
	claims  bool  // claims need it
}

var ownIndexes = []ownIndex{
	{"dovecote_deliveries_due", []string{"available_at", "event_row_id"}, Pending, true},
	{"dovecote_deliveries_tenant_due", []string{"tenant_id", "available_at", "event_row_id"}, Pending, true},
	{"dovecote_deliveries_expiry", []string{"claim_expires_at", "event_row_id"}, InClaim, true},
	{"dovecote_deliveries_quarantined", []string{"event_row_id"}, Quarantined, false},
}

// checkIndexes finds indexes that bear our names but are others, and a table
// where no set of indexes, neither ours nor the other library's, serves claims.
func (c *schemaCopy) checkIndexes(ctx context.Context) {
	indexes := c.indexes(ctx, "dovecote_deliveries")
	claims := true // ours serve them
	for _, want := range ownIndexes {
		i := slices.IndexFunc(indexes, func(x indexInfo) bool { return strings.EqualFold(x.name, want.name) })
		switch {
		case i < 0:
			claims = claims && !want.claims
		case !indexes[i].partial || !indexes[i].keys(want.columns...) || !c.serves(ctx, want):
			claims = claims && !want.claims
			c.problem("index %s: another definition, want dovecote_deliveries (%s) WHERE state = '%s'",
				want.name, strings.Join(want.columns, ", "), want.state)
		}
	}
	foreign := func(due string) bool {
		return slices.ContainsFunc(indexes, func(x indexInfo) bool {
			return !x.partial && x.keys("tenant_id", "state", due, "event_row_id")
		})
	}
	if !claims && !(foreign("available_at") && foreign("claim_expires_at")) {
		c.slow = true
		c.problem("dovecote_deliveries: the indexes of claims are missing: neither (tenant_id, state, available_at, event_row_id)" +
			" and (tenant_id, state, claim_expires_at, event_row_id) nor the relay's own")
	}
}

// serves reports whether SQLite itself takes the partial index for its state.
func (c *schemaCopy) serves(ctx context.Context, x ownIndex) bool {
	query := fmt.Sprintf(`EXPLAIN SELECT 1 FROM dovecote_deliveries INDEXED BY %s WHERE state = '%s'`, x.name, x.state)
	rows, err := c.conn.QueryContext(ctx, query)
	if err != nil {
		return false
	}
	rows.Close()
	return rows.Err() == nil
}
