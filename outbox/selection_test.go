package outbox_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

const dropIndexes = `
DROP INDEX IF EXISTS dovecote_deliveries_due;
DROP INDEX IF EXISTS dovecote_deliveries_tenant_due;
DROP INDEX IF EXISTS dovecote_deliveries_expiry;`

const tenantIndexes = `
CREATE INDEX claimable ON dovecote_deliveries (tenant_id, state, available_at, event_row_id);
CREATE INDEX "expired ""claims""" ON dovecote_deliveries (tenant_id, state, claim_expires_at, event_row_id);`

// layouts are the indexes that a file may have.
var layouts = map[string]string{
	"ours":                 ``,
	"another library's":    dropIndexes + tenantIndexes,
	"both":                 tenantIndexes,
	"none":                 dropIndexes,
	"only ours for due":    `DROP INDEX dovecote_deliveries_expiry; DROP INDEX dovecote_deliveries_tenant_due;`,
	"only ours for expiry": `DROP INDEX dovecote_deliveries_due; DROP INDEX dovecote_deliveries_tenant_due;`,
	"ours with other columns": `DROP INDEX dovecote_deliveries_due;
		CREATE INDEX dovecote_deliveries_due ON dovecote_deliveries (attempts) WHERE state = 'claimed';`,
}

// expectedSQL is the selection without any thought for its cost.
const expectedSQL = `
SELECT event_row_id FROM (
  SELECT event_row_id, iif(state = 'pending', available_at, claim_expires_at) AS due FROM dovecote_deliveries
  WHERE (state = 'pending' AND available_at <= ?1 OR state = 'claimed' AND claim_expires_at <= ?1) AND (?2 = '' OR tenant_id = ?2)
  ORDER BY due, event_row_id LIMIT ?3) ORDER BY event_row_id`

// expected is what a claim of tenant ("" for all) must take.
func expected(t *testing.T, db *sql.DB, now time.Time, tenant string, limit int) []int64 {
	t.Helper()
	rows, err := db.Query(expectedSQL, now.Format("2006-01-02T15:04:05.000000Z"), tenant, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	list := []int64{}
	for rows.Next() {
		var row int64
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		list = append(list, row)
	}
	return list
}

// shuffle puts the rows of three tenants into random states and times around
// noon, many of them equal.
func shuffle(t *testing.T, db *sql.DB, random *rand.Rand) {
	t.Helper()
	for tenant := range 3 {
		outboxtest.Enqueue(t, db, events(fmt.Sprintf("t%d", tenant), 40)...)
	}
	const changeSQL = `UPDATE dovecote_deliveries SET state = ?1, available_at = ?2,
		claim_token = iif(?1 = 'claimed', randomblob(16), NULL), claimed_by = iif(?1 = 'claimed', 'x', NULL), claim_expires_at = iif(?1 = 'claimed', ?3, NULL),
		delivered_at = iif(?1 = 'delivered', ?2, NULL) WHERE event_row_id = ?4`
	at := func() string {
		return noon.Add(time.Duration(random.IntN(20)-10) * time.Second).Format("2006-01-02T15:04:05.000000Z")
	}
	for row := 1; row <= 120; row++ {
		state := []string{"pending", "pending", "claimed", "delivered"}[random.IntN(4)]
		must(t, db, changeSQL, state, at(), at(), row)
	}
}

// Whatever the indexes, a claim takes the rows that plain SQL would.
func TestSelectionIsTheSameWithAnyIndexes(t *testing.T) {
	for name, ddl := range layouts {
		for _, tenant := range []string{"", "t1"} {
			t.Run(fmt.Sprintf("%s/%q", name, tenant), func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				c := &clock{noon}
				s := outboxtest.NewSpoiled(t, c.option)
				db := outboxtest.Producer(t, s.Path())
				shuffle(t, db, rand.New(rand.NewPCG(seed, 0)))
				must(t, db, ddl)
				h := s.AllTenants()
				if tenant != "" {
					h, _ = s.Tenant(tenant)
				}
				for i, limit := 0, 1; ; i, limit = i+1, limit*2 {
					want := expected(t, db, c.now, tenant, limit)
					due, err := h.Due(t.Context())
					if err != nil || due.Ready != (len(want) > 0) {
						t.Fatalf("due %+v, %v, with %d candidates", due, err, len(want))
					}
					if got := rowsOf(claim(t, h, limit)); !slices.Equal(got, want) {
						t.Fatalf("claim %d of %d rows\ngot  %v\nwant %v", i, limit, got, want)
					}
					if len(want) == 0 {
						break
					}
				}
				due, err := h.Due(t.Context())
				if err != nil || due.Ready || due.Next.IsZero() || due.Next.Before(noon) {
					t.Errorf("then due %+v, %v", due, err)
				}
			})
		}
	}
}

// Indexes may come and go under an open store.
func TestIndexesMayComeAndGo(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	rows := outboxtest.Enqueue(t, db, events("acme", 8)...)
	h := s.AllTenants()
	var got []int64
	for _, ddl := range []string{``, dropIndexes, tenantIndexes, `DROP INDEX claimable`, ``} {
		must(t, db, ddl)
		if due, err := h.Due(t.Context()); err != nil || !due.Ready {
			t.Fatalf("after %q: %+v, %v", ddl, due, err)
		}
		got = append(got, rowsOf(claim(t, h, 1))...)
	}
	m, err := outbox.Migrate(t.Context(), s.Path(), outbox.MigrateOptions{AddIndexes: true})
	if err != nil || len(m.Steps) == 0 {
		t.Fatal(m, err)
	}
	if got = append(got, rowsOf(claim(t, h, 100))...); !slices.Equal(got, rows) {
		t.Errorf("claimed %v, want %v", got, rows)
	}
}

// A tenant stored as a blob is no tenant; its row is named, and the rows of others
// go out.
func TestATenantOfBlobStallsNobody(t *testing.T) {
	for name, ddl := range layouts {
		t.Run(name, func(t *testing.T) {
			s := outboxtest.NewSpoiled(t)
			db := outboxtest.Producer(t, s.Path())
			rows := outboxtest.Enqueue(t, db, events("acme", 3)...)
			must(t, db, ddl)
			db.SetMaxOpenConns(1)
			must(t, db, `PRAGMA foreign_keys = OFF`)
			must(t, db, `UPDATE dovecote_events SET tenant_id = x'ff00' WHERE row_id = ?`, rows[1])
			must(t, db, `UPDATE dovecote_deliveries SET tenant_id = x'ff00' WHERE event_row_id = ?`, rows[1])
			h := s.AllTenants()
			if due, err := h.Due(t.Context()); err != nil || !due.Ready {
				t.Error(due, err)
			}
			x, err := h.Exchange(t.Context(), nil, outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 10})
			bad, ok := x.ClaimErr.(*outbox.BadRowsError)
			if err != nil || !ok || len(bad.Rows) != 1 || bad.Rows[0].Row != rows[1] {
				t.Fatalf("%v, %v", x.ClaimErr, err)
			}
			if aside, err := h.SetAside(t.Context(), bad.Rows); err != nil || len(aside) != 1 {
				t.Fatal(aside, err)
			}
			if got := rowsOf(claim(t, h, 10)); !slices.Equal(got, []int64{rows[0], rows[2]}) {
				t.Error(got)
			}
		})
	}
}
