package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// indexes says how the deliveries of a file can be selected. A file that another
// library installed has indexes that start with the tenant, and ours may be
// added or dropped at any time.
type indexes struct {
	version  int64 // of SQLite's schema, where this was seen
	all      armIndexes
	tenant   armIndexes
	byTenant bool // nothing serves all tenants at once: go through them one by one
	queries  sync.Map
}

// armIndexes are INDEXED BY clauses, or empty where there is no index for it:
// selection is then right, but its cost grows with the table.
type armIndexes struct{ due, expiry, quarantined string }

const schemaVersionSQL = `PRAGMA schema_version`

// indexes looks at the file's indexes, again whenever its schema has changed.
func (s *Store) indexes(ctx context.Context, t *txn) (*indexes, error) {
	var version int64
	if err := t.queryRow(ctx, schemaVersionSQL).Scan(&version); err != nil {
		return nil, err
	}
	if ix := s.indexed.Load(); ix != nil && ix.version == version {
		return ix, nil
	}
	found, err := listIndexes(ctx, t)
	if err != nil {
		return nil, err
	}
	ix := chooseIndexes(found)
	ix.version = version
	s.indexed.Store(ix)
	return ix, nil
}

const listIndexesSQL = `
SELECT l.name, l.partial, group_concat(i.name, ',' ORDER BY i.seqno), ifnull(m.sql, '')
FROM pragma_index_list('dovecote_deliveries') AS l
JOIN pragma_index_info(l.name) AS i
LEFT JOIN sqlite_master AS m ON m.type = 'index' AND m.name = l.name
GROUP BY l.name ORDER BY l.name`

// index is one of the file's indexes on deliveries.
type index struct {
	name, columns, where string
}

func listIndexes(ctx context.Context, t *txn) ([]index, error) {
	rows, err := t.query(ctx, listIndexesSQL)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []index
	for rows.Next() {
		var ix index
		var partial bool
		var columns sql.NullString // an expression has no name
		var ddl string
		if err := rows.Scan(&ix.name, &partial, &columns, &ddl); err != nil {
			return nil, err
		}
		ix.columns = columns.String
		if partial {
			_, where, _ := strings.Cut(strings.ToLower(ddl), "where")
			ix.where = strings.Join(strings.Fields(where), "")
		}
		found = append(found, ix)
	}
	return found, rows.Err()
}

// The forms of an index that can serve an arm of a selection.
var (
	dueForms = []index{
		{columns: "available_at,event_row_id", where: "state='pending'"},
		{columns: "state,available_at,event_row_id"},
	}
	expiryForms = []index{
		{columns: "claim_expires_at,event_row_id", where: "state='claimed'"},
		{columns: "state,claim_expires_at,event_row_id"},
	}
	tenantDueForms = []index{
		{columns: "tenant_id,available_at,event_row_id", where: "state='pending'"},
		{columns: "tenant_id,state,available_at,event_row_id"},
	}
	tenantExpiryForms = []index{
		{columns: "tenant_id,claim_expires_at,event_row_id", where: "state='claimed'"},
		{columns: "tenant_id,state,claim_expires_at,event_row_id"},
	}
	quarantinedForms       = []index{{columns: "event_row_id", where: "state='quarantined'"}}
	tenantQuarantinedForms = []index{{columns: "tenant_id,state,available_at,event_row_id"}}
)

func chooseIndexes(found []index) *indexes {
	ix := &indexes{
		all:    armIndexes{pick(found, dueForms), pick(found, expiryForms), pick(found, quarantinedForms)},
		tenant: armIndexes{pick(found, tenantDueForms), pick(found, tenantExpiryForms), pick(found, tenantQuarantinedForms)},
	}
	ix.byTenant = (ix.all.due == "" || ix.all.expiry == "") && ix.tenant.due != "" && ix.tenant.expiry != ""
	// For one tenant, an index over all of them is the next best. For expiry it is
	// as good: expired claims are few, because they are claimed again.
	ix.tenant.due = cmp.Or(ix.tenant.due, ix.all.due)
	ix.tenant.expiry = cmp.Or(ix.tenant.expiry, ix.all.expiry)
	ix.tenant.quarantined = cmp.Or(ix.tenant.quarantined, ix.all.quarantined)
	return ix
}

// pick names the first form that is there.
func pick(found, forms []index) string {
	for _, form := range forms {
		i := slices.IndexFunc(found, func(f index) bool { return f.columns == form.columns && f.where == form.where })
		if i >= 0 {
			return `INDEXED BY "` + strings.ReplaceAll(found[i].name, `"`, `""`) + `"`
		}
	}
	return ""
}

const nextTenantSQL = `SELECT min(tenant_id) FROM dovecote_deliveries %s WHERE tenant_id > ?`

// tenants are the distinct tenants of the deliveries, each found by one step
// into an index that starts with them. One that another writer stored as a blob is
// a []byte and comes last.
func (ix *indexes) tenants(ctx context.Context, t *txn) ([]any, error) {
	query := fmt.Sprintf(nextTenantSQL, ix.tenant.due)
	var all []any
	var last any = ""
	for {
		if err := t.queryRow(ctx, query, last).Scan(&last); err != nil {
			return nil, err
		}
		if last == nil {
			return all, nil
		}
		all = append(all, last)
	}
}
