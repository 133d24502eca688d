package outbox

import (
	"context"
	"strconv"
	"strings"
)

// Acknowledgements and leases come by the hundred. One statement for all of
// them costs two thirds of one for each, provided that SQLite goes through
// the list and finds each row by its id. Statistics can make it go through the
// table and search the list for each row instead, which no syntax of UPDATE rules out;
// so the plan is looked at before it is relied on (see wholeSets).

// minSet is the least number of rows for which one statement pays.
const minSet = 8

// setJoin joins the deliveries d with the ids ?2, of which the one at place j.key has
// its token in the same place of ?3.
const setJoin = `
FROM json_each(?2) AS j
WHERE d.event_row_id = j.value`

const setToken = `substr(?3, 16 * j.key + 1, 16)`

var ackSetSQL = byTenant(3, `UPDATE dovecote_deliveries AS d NOT INDEXED
SET state = 'delivered', delivered_at = ?1, `+clearClaimSQL+setJoin+`
  AND d.state = 'claimed' AND d.claim_token = `+setToken+` AND d.claim_expires_at > ?1`)

const leaseSetSQL = `UPDATE dovecote_deliveries AS d NOT INDEXED
SET state = 'claimed', attempts = d.attempts + 1, claim_token = ` + setToken + `, claimed_by = ?4, claim_expires_at = ?5` + setJoin + `
  AND (d.state = 'pending' AND d.available_at <= ?1 OR d.state = 'claimed' AND d.claim_expires_at <= ?1)`

const (
	ackSavepoint = `SAVEPOINT acks`
	releaseAcks  = `RELEASE acks`
	undoAcks     = `ROLLBACK TO acks`
)

// ackSet acknowledges batch, which has nothing but acknowledgements, if it can
// all be done. False: nothing was done, and one by one will tell why.
func (h *Handle) ackSet(ctx context.Context, t *txn, batch []Settlement) (bool, error) {
	query, args := h.pick(ackSetSQL, t.now, idList(batch, func(s *Settlement) int64 { return s.Row }),
		tokenList(batch, func(s *Settlement) *Token { return &s.Token }))
	if whole, err := t.wholeSets(ctx, query); !whole || err != nil {
		return false, err
	}
	if _, err := t.exec(ctx, ackSavepoint); err != nil {
		return false, err
	}
	n, err := t.changed(ctx, query, args...)
	if err != nil && !isConstraint(err) {
		return false, err
	}
	done := err == nil && n == int64(len(batch))
	if !done {
		if _, err := t.exec(ctx, undoAcks); err != nil {
			return false, err
		}
	}
	_, err = t.exec(ctx, releaseAcks)
	return done, err
}

// leaseSet leases the batch with query, which is leaseSetSQL or leaseAheadSQL, and returns
// how many rows that took. If it is not all of them, the batch has no claims: the caller
// undoes the rest. None: perhaps a row cannot be written, and one by one will tell which.
func (b *claimBatch) leaseSet(ctx context.Context, t *txn, query string, r ClaimRequest, more ...any) (int, error) {
	if whole, err := t.wholeSets(ctx, query); !whole || err != nil {
		return 0, err
	}
	expires := t.at.Add(r.Lease)
	args := append([]any{
		t.now, idList(b.rows, func(c *Claimed) int64 { return c.Row }),
		tokenList(b.rows, func(c *Claimed) *Token { return &c.Token }), r.Worker, formatTime(expires),
	}, more...)
	n, err := t.changed(ctx, query, args...)
	if isConstraint(err) {
		return 0, nil // SQLite has undone the statement
	}
	for i := range b.rows {
		b.rows[i].Expires = expires
	}
	return int(n), err
}

// idList is the row ids of list as a JSON array.
func idList[T any](list []T, id func(*T) int64) string {
	b := make([]byte, 0, 10*len(list)+2)
	for i := range list {
		b = append(b, "[,"[min(i, 1)])
		b = strconv.AppendInt(b, id(&list[i]), 10)
	}
	return string(append(b, ']'))
}

// tokenList is the tokens of list, one after another.
func tokenList[T any](list []T, token func(*T) *Token) []byte {
	b := make([]byte, 0, len(Token{})*len(list))
	for i := range list {
		b = append(b, token(&list[i])[:]...)
	}
	return b
}

// plans remembers, for one connection, which statements over sets go through
// their list. SQLite plans anew when the schema has changed, and only then does it see
// other statistics.
type plans struct {
	version int64 // of the schema
	whole   map[string]bool
}

// wholeSets reports whether query, a statement over a set, goes through the list
// once and finds each row by its id.
func (t *txn) wholeSets(ctx context.Context, query string) (bool, error) {
	if t.stmts == nil {
		return false, nil
	}
	var version int64
	if err := t.queryRow(ctx, schemaVersionSQL).Scan(&version); err != nil {
		return false, err
	}
	p := &t.stmts.plans
	if p.version != version || p.whole == nil {
		*p = plans{version, make(map[string]bool)}
	}
	whole, known := p.whole[query]
	if !known {
		steps, err := t.plan(ctx, query)
		if err != nil {
			return false, err
		}
		whole = len(steps) > 0 && strings.HasPrefix(steps[0], "SCAN j ")
		for _, step := range steps[min(1, len(steps)):] {
			whole = whole && strings.Contains(step, " USING INTEGER PRIMARY KEY (rowid=?)")
		}
		p.whole[query] = whole
	}
	return whole, nil
}

// plan is how SQLite would run query.
func (t *txn) plan(ctx context.Context, query string) ([]string, error) {
	rows, err := t.conn.QueryContext(context.WithoutCancel(ctx), "EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?")+1)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		steps = append(steps, detail)
	}
	return steps, rows.Err()
}
