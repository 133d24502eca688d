package outbox

import "strconv"

// Handle is a Store seen as one tenant, or explicitly as all tenants. Each
// operation carries the tenant as an SQL predicate.
type Handle struct {
	store  *Store
	tenant string // "": all
}

// Tenant returns a handle that sees one tenant only. An invalid name is an
// *InvalidEventError for field "tenant".
func (s *Store) Tenant(name string) (*Handle, error) {
	if err := validTenant(name); err != nil {
		return nil, err
	}
	return &Handle{store: s, tenant: name}, nil
}

// AllTenants returns a handle over every tenant.
func (s *Store) AllTenants() *Handle { return &Handle{store: s} }

func validTenant(name string) error {
	if p := checkTenant(name); p != nil {
		return inField("tenant", p)
	}
	return nil
}

// scope is the handle's tenant as an SQL predicate on column, with a leading
// AND and a plain ? placeholder, and its argument. An all-tenant handle has neither.
func (h *Handle) scope(column string) (string, []any) {
	if h.tenant == "" {
		return "", nil
	}
	return " AND " + column + " = ?", []any{h.tenant}
}

// tenantSQL is a statement for all tenants, and for one.
type tenantSQL struct{ all, one string }

// byTenant makes both forms of a statement that ends in its WHERE clause and has
// placeholders ?1 to ?n.
func byTenant(n int, query string) tenantSQL {
	return tenantSQL{query, query + " AND tenant_id = ?" + strconv.Itoa(n+1)}
}

// pick takes the form for this handle.
func (h *Handle) pick(q tenantSQL, args ...any) (string, []any) {
	if h.tenant == "" {
		return q.all, args
	}
	return q.one, append(args, h.tenant)
}
