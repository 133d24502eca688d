package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// candidate is a row that may be claimed: pending and due, or claimed and
// expired.
type candidate struct {
	due string // available_at or claim_expires_at, as stored
	row int64
}

func (c candidate) compare(d candidate) int {
	if n := strings.Compare(c.due, d.due); n != 0 {
		return n
	}
	return cmp.Compare(c.row, d.row)
}

// candidates are the up to limit earliest due rows, by due time and then row id.
// (The library whose schema this is takes the lowest row ids among the due
// ones instead. The two agree unless a row was retried. By due time the cost does not
// depend on how many rows wait, and no failing row starves the others.)
func (h *Handle) candidates(ctx context.Context, t *txn, limit int) ([]candidate, error) {
	found, err := h.earliest(ctx, t, limit)
	h.store.deep.Store(len(found) == limit)
	return found, err
}

func (h *Handle) earliest(ctx context.Context, t *txn, limit int) ([]candidate, error) {
	ix, err := h.store.indexes(ctx, t)
	if err != nil {
		return nil, err
	}
	tenants, err := h.selected(ctx, t, ix)
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, query := range []string{ix.pendingDue(h.tenant), ix.expired(h.tenant)} {
		for _, tenant := range tenants {
			args := []any{t.now, limit}
			if tenant != "" {
				args = append(args, tenant)
			}
			if all, err = appendCandidates(ctx, t, query, args, all); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(all, candidate.compare)
	return all[:min(limit, len(all))], nil
}

// selected are the tenants that the queries are run for: this handle's one, or "" for
// all at once, or each where the indexes serve one tenant only.
func (h *Handle) selected(ctx context.Context, t *txn, ix *indexes) ([]any, error) {
	if h.tenant == "" && ix.byTenant {
		return ix.tenants(ctx, t)
	}
	return []any{h.tenant}, nil
}

// appendCandidates appends the candidates that query finds to all.
func appendCandidates(ctx context.Context, t *txn, query string, args []any, all []candidate) ([]candidate, error) {
	rows, err := t.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.due, &c.row); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, rows.Err()
}

// Each of the two kinds of candidates is read from its index, in its order, up to the
// limit, so that the cost is the same whatever else is in the table. The planner has no
// choice: as one query with OR it would read, and sort, everything. (UNION ALL of the two
// costs half as much again, for SQLite merges them row by row.) ?1 is now, ?2 the limit,
// ?3 the tenant.
const (
	pendingDueSQL = `
SELECT available_at, event_row_id FROM dovecote_deliveries {due}
WHERE state = 'pending' AND available_at <= ?1{tenant} ORDER BY available_at, event_row_id LIMIT ?2`
	expiredSQL = `
SELECT claim_expires_at, event_row_id FROM dovecote_deliveries {expiry}
WHERE state = 'claimed' AND claim_expires_at <= ?1{tenant} ORDER BY claim_expires_at, event_row_id LIMIT ?2`
)

// dueSQL is the head of both, however far away.
const dueSQL = `
SELECT
  (SELECT available_at FROM dovecote_deliveries {due}
   WHERE state = 'pending'{tenant} ORDER BY available_at, event_row_id LIMIT 1),
  (SELECT claim_expires_at FROM dovecote_deliveries {expiry}
   WHERE state = 'claimed'{tenant} ORDER BY claim_expires_at, event_row_id LIMIT 1)`

// pendingDue is the query for one tenant, or for all ("") where an index serves
// that. In a file with indexes by tenant only, it is always for one.
func (ix *indexes) pendingDue(tenant string) string {
	return ix.fill(pendingDueSQL, tenant != "", " AND tenant_id = ?3")
}

func (ix *indexes) expired(tenant string) string {
	return ix.fill(expiredSQL, tenant != "", " AND tenant_id = ?3")
}

func (ix *indexes) due(tenant string) string {
	return ix.fill(dueSQL, tenant != "", " AND tenant_id = ?1")
}

// fill makes a query of its form, once.
func (ix *indexes) fill(form string, one bool, predicate string) string {
	one = one || ix.byTenant
	key := fmt.Sprint(one, form)
	if q, ok := ix.queries.Load(key); ok {
		return q.(string)
	}
	due, expiry := ix.all.due, ix.all.expiry
	if one {
		due, expiry = ix.tenant.due, ix.tenant.expiry
	} else {
		predicate = ""
	}
	q := strings.NewReplacer("{due}", due, "{expiry}", expiry, "{tenant}", predicate).Replace(form)
	ix.queries.Store(key, q)
	return q
}
