package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// searches are statements that must find each of their tables by a key. Those
// with a range of rows go through that range and no further.
func searches(tenant bool) map[string]string {
	scope := func(column string) string {
		if tenant {
			return " AND " + column + " = 'acme'"
		}
		return ""
	}
	pick := func(q tenantSQL) string {
		if tenant {
			return q.one
		}
		return q.all
	}
	return map[string]string{
		"page":               fmt.Sprintf(pageRowsSQL, scope("e.tenant_id")),
		"entry":              entrySQL,
		"requeue":            pick(requeueSQL[0]),
		"requeue, no code":   pick(requeueSQL[1]),
		"quarantine":         pick(dismissSQL[0]),
		"repair":             fmt.Sprintf(repairSQL, scope("e.tenant_id")),
		"first delivery":     firstDeliverySQL,
		"look for old rows":  fmt.Sprintf(scanSQL, scope("d.tenant_id"), 10),
		"find an import":     importedSQL + `e.tenant_id = ? AND e.source = ? AND e.event_id = ?`,
		"find a row":         importedSQL + `e.row_id = ? AND e.tenant_id = ?`,
		"finalize":           finalizeSQL,
		"insert a delivered": insertDeliveredSQL,
	}
}

// counts are statements that must read indexes alone, of rows in one state.
func counts(c *counter) map[string]string {
	return map[string]string{
		"count pending":     countSQL + c.from(Pending, ""),
		"count quarantined": countSQL + c.from(Quarantined, ""),
		"leases":            leasesSQL + c.from(InClaim, ""),
		"oldest":            fmt.Sprintf(oldestSQL, c.from(Pending, "")),
		"next":              nextSQL + c.from(Pending, ""),
	}
}

func TestPlansOfAdministrationStayBounded(t *testing.T) {
	for analyzed := -1; analyzed < len(planShapes); analyzed++ {
		t.Run(fmt.Sprintf("analyzed %d", analyzed), func(t *testing.T) {
			s := open(t, Options{})
			for i, shape := range planShapes {
				addRows(t, s, shape.state, shape.rows)
				if i == analyzed {
					execWriter(t, s, `ANALYZE`)
				}
				err := s.read(t.Context(), "test", func(ctx context.Context, x *txn) error {
					return checkAdministration(ctx, t, s, x, shape.name, analyzed == 1)
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// ranges are statements that go through a range of row ids. SQLite takes them
// through the whole table when its statistics say that it has three rows or fewer:
// slower, but right. A prune looks at the plan and makes the best of it.
var ranges = []string{"page", "first delivery", "look for old rows"}

func checkAdministration(ctx context.Context, t *testing.T, s *Store, x *txn, shape string, tiny bool) error {
	check := func(queries map[string]string, bad func(name, step string) bool) error {
		for name, query := range queries {
			steps, err := x.plan(ctx, query)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, step := range steps {
				if bad(name, step) {
					t.Errorf("%s: %s: %q in\n%s", shape, name, step, strings.Join(steps, "\n"))
				}
			}
		}
		return nil
	}
	for _, tenant := range []bool{false, true} {
		err := check(searches(tenant), func(name, step string) bool {
			switch {
			case name == "entry" && (step == "SCAN e" || step == "SCAN d LEFT-JOIN"):
				return false // of the one row that each part has found
			case strings.HasPrefix(step, "SCAN (subquery"), tiny && slices.Contains(ranges, name):
				return false
			}
			return strings.Contains(step, "TEMP B-TREE") || strings.HasPrefix(step, "SCAN")
		})
		if err != nil {
			return err
		}
	}
	for _, h := range []*Handle{s.AllTenants(), {store: s, tenant: "acme"}} {
		c, err := h.counter(ctx, x)
		if err != nil {
			return err
		}
		for _, state := range []State{Pending, InClaim, Quarantined} {
			query, err := c.byStream(state)
			if err != nil {
				return err
			}
			if steps, err := x.plan(ctx, query); err != nil || slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, "SCAN e") }) {
				t.Errorf("%s: %s by stream: %s, %v", shape, state, strings.Join(steps, "\n"), err)
			}
		}
		err = check(counts(c), func(_, step string) bool {
			return strings.Contains(step, "TEMP B-TREE") || strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "INDEX")
		})
		if err != nil {
			return err
		}
	}
	return nil
}
