package outbox

import "context"

// Finding is one broken invariant of the data.
type Finding struct {
	Row    int64 // 0: the whole file
	Rule   string
	Detail string
}

// Check verifies the invariants of the data (not of the schema, which Open
// does): one delivery for each event, tenants equal, the state table, value
// forms, decodable events, leases within bounds, SQLite's own integrity and
// foreign keys. limit bounds the findings returned (0: 100). Read-only.
func (h *Handle) Check(ctx context.Context, limit int) ([]Finding, error) { panic("todo") }
