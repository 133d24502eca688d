package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

func event(tenant, id string) outbox.Event {
	return outbox.Event{
		Tenant: tenant, Stream: "orders", ID: id, Source: "/orders", Type: "com.example.order.placed",
		ContentType: "application/json", Data: outbox.JSON([]byte(`{"id":1}`)),
	}
}

func events(tenant string, n int) []outbox.Event {
	list := make([]outbox.Event, n)
	for i := range list {
		list[i] = event(tenant, fmt.Sprintf("%s-%d", tenant, i+1))
	}
	return list
}

func must(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

const deliveriesSQL = `SELECT event_row_id, state, available_at, attempts, iif(claim_token IS NULL, NULL, hex(claim_token)), claimed_by, claim_expires_at,
last_failure_code, last_failure_detail, delivered_at, quarantined_at, quarantine_reason FROM dovecote_deliveries ORDER BY event_row_id`

// dump is every delivery as stored, a line each.
func dump(tb testing.TB, db *sql.DB) string {
	tb.Helper()
	rows, err := db.Query(deliveriesSQL)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		v := make([]any, 12)
		for i := range v {
			v[i] = new(any)
		}
		if err := rows.Scan(v...); err != nil {
			tb.Fatal(err)
		}
		for i := range v {
			fmt.Fprintf(&b, "%v|", *v[i].(*any))
		}
		b.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func rowsOf(claimed []outbox.Claimed) []int64 {
	rows := []int64{}
	for _, c := range claimed {
		rows = append(rows, c.Row)
	}
	return rows
}

func claim(tb testing.TB, h *outbox.Handle, limit int) []outbox.Claimed {
	tb.Helper()
	c, err := h.Claim(context.Background(), "worker", time.Minute, limit)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestClaimValidates(t *testing.T) {
	h := outboxtest.NewStore(t).AllTenants()
	for _, tc := range []struct {
		name   string
		worker string
		lease  time.Duration
		limit  int
		want   any
	}{
		{"limit zero", "w", time.Second, 0, new(*outbox.InvalidLimitError)},
		{"limit above 1,000", "w", time.Second, 1001, new(*outbox.InvalidLimitError)},
		{"no worker", "", time.Second, 1, new(*outbox.InvalidEventError)},
		{"worker of 256 bytes", strings.Repeat("w", 256), time.Second, 1, new(*outbox.InvalidEventError)},
		{"no lease", "w", 0, 1, new(*outbox.InvalidDurationError)},
		{"negative lease", "w", -time.Second, 1, new(*outbox.InvalidDurationError)},
		{"lease finer than a millisecond", "w", time.Second + time.Microsecond, 1, new(*outbox.InvalidDurationError)},
		{"lease above 24 hours", "w", 24*time.Hour + time.Millisecond, 1, new(*outbox.InvalidDurationError)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := h.Claim(t.Context(), tc.worker, tc.lease, tc.limit); !errors.As(err, tc.want) {
				t.Errorf("claim: %v", err)
			}
			if tc.limit == 0 {
				return
			}
			r := outbox.ClaimRequest{Worker: tc.worker, Lease: tc.lease, Limit: tc.limit}
			if _, err := h.Exchange(t.Context(), nil, r); !errors.As(err, tc.want) {
				t.Errorf("exchange: %v", err)
			}
		})
	}
	for _, lease := range []time.Duration{time.Millisecond, 24 * time.Hour} {
		if c, err := h.Claim(t.Context(), strings.Repeat("w", 255), lease, 1000); err != nil || len(c) != 0 {
			t.Errorf("at the bounds: %v, %v", c, err)
		}
	}
}

func TestClaimTakesTheEarliestDueInRowOrder(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Now = func() time.Time { return now } })
	db := outboxtest.Producer(t, s.Path())
	rows := outboxtest.Enqueue(t, db, events("acme", 8)...)
	due := func(row int64, at string) {
		must(t, db, `UPDATE dovecote_deliveries SET available_at = ? WHERE event_row_id = ?`, at, row)
	}
	expired := func(row int64, at string) {
		must(t, db, `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = randomblob(16), claimed_by = 'x', claim_expires_at = ? WHERE event_row_id = ?`, at, row)
	}
	due(rows[0], "2026-05-01T12:00:00.001000Z")     // not yet
	due(rows[1], "2026-05-01T11:59:59.000000Z")     // 4th
	expired(rows[2], "2026-05-01T11:59:58.000000Z") // 2nd
	due(rows[3], "2026-05-01T12:00:00.000000Z")     // 6th: due at this very moment
	due(rows[4], "2026-05-01T11:59:58.000000Z")     // 3rd: as the 2nd, later row id
	expired(rows[5], "2026-05-01T12:00:00.001000Z") // not yet
	due(rows[6], "2026-05-01T11:00:00.000000Z")     // 1st
	expired(rows[7], "2026-05-01T12:00:00.000000Z") // 7th: expired at this very moment
	h := s.AllTenants()
	for _, want := range [][]int64{{rows[2], rows[6]}, {rows[1], rows[4]}, {rows[3], rows[7]}, {}} {
		got := claim(t, h, 2)
		if !slices.Equal(rowsOf(got), want) {
			t.Fatalf("claimed %v, want %v", rowsOf(got), want)
		}
		for _, c := range got {
			if c.Reclaimed != (c.Row == rows[2] || c.Row == rows[7]) {
				t.Errorf("row %d: reclaimed %v", c.Row, c.Reclaimed)
			}
			if !c.Expires.Equal(now.Add(time.Minute)) || c.Attempts != 1 {
				t.Errorf("row %d: expires %v, attempts %d", c.Row, c.Expires, c.Attempts)
			}
		}
	}
}

func TestClaimReturnsWhatWasStored(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, events("acme", 3)...)
	before := time.Now().Add(-time.Second)
	for _, c := range claim(t, s.AllTenants(), 10) {
		var token []byte
		var expires, enqueued, worker string
		var attempts int64
		err := db.QueryRow(`SELECT claim_token, claim_expires_at, attempts, claimed_by, enqueued_at
			FROM dovecote_deliveries JOIN dovecote_events ON row_id = event_row_id WHERE row_id = ?`, c.Row).
			Scan(&token, &expires, &attempts, &worker, &enqueued)
		const layout = "2006-01-02T15:04:05.000000Z"
		if err != nil || string(token) != string(c.Token[:]) || expires != c.Expires.Format(layout) ||
			attempts != c.Attempts || worker != "worker" || enqueued != c.EnqueuedAt.Format(layout) {
			t.Errorf("stored %x %s %d %s %s, claimed %+v, %v", token, expires, attempts, worker, enqueued, c, err)
		}
		if !strings.HasSuffix(expires, "000Z") || c.Expires.Before(before.Add(time.Minute)) {
			t.Errorf("expires %s", expires)
		}
		if got := fmt.Sprintf("%v %+v %#v %s", c.Token, c, c, c.Token); strings.Contains(got, string(token)) || strings.Contains(got, fmt.Sprintf("%x", token)) {
			t.Error("a token prints itself")
		}
	}
}

func TestClaimStopsAtMaxBytes(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	list := events("acme", 6)
	for i, size := range []int{900, 100, 1, 3000, 10, 10} {
		list[i].ContentType, list[i].Data = "application/octet-stream", outbox.Binary(make([]byte, size))
	}
	rows := outboxtest.Enqueue(t, db, list...)
	for i, row := range rows {
		must(t, db, `UPDATE dovecote_deliveries SET available_at = ? WHERE event_row_id = ?`, fmt.Sprintf("2020-01-01T00:00:%02d.000000Z", i), row)
	}
	for _, want := range [][]int64{rows[0:2], rows[2:3], rows[3:4], rows[4:6], {}} {
		x, err := s.AllTenants().Exchange(t.Context(), nil, outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 100, MaxBytes: 1000})
		if err != nil || x.ClaimErr != nil || !slices.Equal(rowsOf(x.Claimed), want) {
			t.Fatalf("claimed %v, want %v; %v, %v", rowsOf(x.Claimed), want, err, x.ClaimErr)
		}
	}
}

func TestTenantHandlesSeeTheirOwn(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	a := outboxtest.Enqueue(t, db, events("a", 3)...)
	b := outboxtest.Enqueue(t, db, events("b", 3)...)
	must(t, db, `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = randomblob(16), claimed_by = 'x',
		claim_expires_at = '2020-01-01T00:00:00.000000Z' WHERE event_row_id IN (?, ?)`, a[2], b[2])
	ha, err := s.Tenant("a")
	if err != nil {
		t.Fatal(err)
	}
	hb, err := s.Tenant("b")
	if err != nil {
		t.Fatal(err)
	}
	claimed := claim(t, ha, 10)
	if !slices.Equal(rowsOf(claimed), a) {
		t.Fatalf("tenant a got %v, wants %v", rowsOf(claimed), a)
	}
	due, err := ha.Due(t.Context())
	if err != nil || due.Ready || !due.Next.Equal(claimed[0].Expires) {
		t.Errorf("tenant a: %+v, %v", due, err)
	}
	if due, err := hb.Due(t.Context()); err != nil || !due.Ready {
		t.Errorf("tenant b: %+v, %v", due, err)
	}
	// Another tenant's row does not exist, whatever the token.
	for _, action := range []outbox.Action{outbox.Ack, outbox.Retry, outbox.Release, outbox.Renew, outbox.Quarantine} {
		settled, err := hb.Settle(t.Context(), []outbox.Settlement{{Row: claimed[0].Row, Token: claimed[0].Token, Action: action, Delay: time.Second}})
		if err != nil || settled[0].Err != outbox.ErrNotFound {
			t.Errorf("action %d: %v, %v", action, settled, err)
		}
	}
	if aside, err := ha.SetAside(t.Context(), []outbox.BadRow{{Row: b[0], Code: "undecodable"}}); err != nil || len(aside) != 0 {
		t.Errorf("set aside %v, %v", aside, err)
	}
	if got := claim(t, s.AllTenants(), 10); !slices.Equal(rowsOf(got), b) {
		t.Errorf("all tenants got %v, want %v", rowsOf(got), b)
	}
	for _, name := range []string{"", strings.Repeat("x", 256), "a\nb", "a\uFFFF"} {
		if _, err := s.Tenant(name); !errors.As(err, new(*outbox.InvalidEventError)) {
			t.Errorf("tenant %q: %v", name, err)
		}
	}
}

// entropy gives what it holds, then fails.
type entropy struct{ data []byte }

func (e *entropy) Read(p []byte) (int, error) {
	if len(e.data) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n := copy(p, e.data)
	e.data = e.data[n:]
	return n, nil
}

func TestClaimWithoutEntropyChangesNothing(t *testing.T) {
	same := make([]byte, 16*100)
	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"no entropy", nil},
		{"entropy for one token of three", make([]byte, 20)},
		{"the same token again and again", same},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source := &entropy{tc.data}
			s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Entropy = source })
			db := outboxtest.Producer(t, s.Path())
			outboxtest.Enqueue(t, db, events("acme", 3)...)
			before := dump(t, db)
			_, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, 3)
			if !errors.Is(err, outbox.ErrEntropyUnavailable) {
				t.Fatal(err)
			}
			if after := dump(t, db); after != before {
				t.Errorf("changed:\n%s%s", before, after)
			}
			source.data = []byte(strings.Repeat("0123456789abcdef", 1) + "123456789abcdef0" + "23456789abcdef01")
			for _, c := range claim(t, s.AllTenants(), 3) {
				if c.Attempts != 1 {
					t.Errorf("row %d: attempts %d", c.Row, c.Attempts)
				}
			}
		})
	}
}

func TestReclaimDrawsAnotherToken(t *testing.T) {
	first, second := "0123456789abcdef", "fedcba9876543210"
	source := &entropy{[]byte(first + first + second)}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := outboxtest.NewStore(t, func(o *outbox.Options) {
		o.Entropy, o.Now = source, func() time.Time { return now }
	})
	db := outboxtest.Producer(t, s.Path())
	outboxtest.Enqueue(t, db, event("acme", "1"))
	must(t, db, `UPDATE dovecote_deliveries SET available_at = '2026-01-01T00:00:00.000000Z'`)
	if c := claim(t, s.AllTenants(), 1); string(c[0].Token[:]) != first || c[0].Reclaimed {
		t.Fatalf("%+v", c)
	}
	now = now.Add(2 * time.Minute)
	c := claim(t, s.AllTenants(), 1)
	if string(c[0].Token[:]) != second || c[0].Attempts != 2 || !c[0].Reclaimed {
		t.Fatalf("the stored token was drawn again: %x, %+v", c[0].Token[:], c)
	}
}

func TestClaimNamesEveryBadRow(t *testing.T) {
	for _, tc := range []struct {
		name, spoil string
		code        string
	}{
		{"attempts at the end of their range", `UPDATE dovecote_deliveries SET attempts = 9223372036854775807 WHERE event_row_id = ?`, "counter_overflow"},
		{"attempts of text", `UPDATE dovecote_deliveries SET attempts = 'many' WHERE event_row_id = ?`, "undecodable"},
		{"attempts of blob", `UPDATE dovecote_deliveries SET attempts = x'00' WHERE event_row_id = ?`, "undecodable"},
		{"attempts of real", `UPDATE dovecote_deliveries SET attempts = 1e300 WHERE event_row_id = ?`, "undecodable"},
		{"extensions of broken JSON", `UPDATE dovecote_events SET extensions = '{' WHERE row_id = ?`, "undecodable"},
		{"a data kind and no content type", `UPDATE dovecote_events SET data_kind = 'binary', data = '', datacontenttype = x'01' WHERE row_id = ?`, "undecodable"},
		{"JSON that is none", `UPDATE dovecote_events SET data = '{"a":' WHERE row_id = ?`, "undecodable"},
		{"an empty type", `UPDATE dovecote_events SET event_type = '' WHERE row_id = ?`, "undecodable"},
		{"a source of blob", `UPDATE dovecote_events SET source = x'2f6f' WHERE row_id = ?`, "undecodable"},
		{"a time in another form", `UPDATE dovecote_events SET occurred_at = 'yesterday' WHERE row_id = ?`, "undecodable"},
		{"no event", `DELETE FROM dovecote_events WHERE row_id = ?`, "undecodable"},
		{"another tenant's event", `UPDATE dovecote_events SET tenant_id = 'other' WHERE row_id = ?`, "undecodable"},
		{"delivered without being so", `UPDATE dovecote_deliveries SET delivered_at = 'x' WHERE event_row_id = ?`, "undecodable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := outboxtest.NewSpoiled(t)
			db := outboxtest.Producer(t, s.Path())
			rows := outboxtest.Enqueue(t, db, events("acme", 5)...)
			db.SetMaxOpenConns(1)
			must(t, db, `PRAGMA foreign_keys = OFF`)
			must(t, db, `PRAGMA ignore_check_constraints = ON`)
			must(t, db, tc.spoil, rows[1])
			must(t, db, tc.spoil, rows[3])
			before := dump(t, db)
			h := s.AllTenants()
			_, err := h.Claim(t.Context(), "w", time.Minute, 10)
			var bad *outbox.BadRowsError
			if !errors.As(err, &bad) || len(bad.Rows) != 2 || bad.Rows[0].Row != rows[1] || bad.Rows[1].Row != rows[3] {
				t.Fatalf("%v", err)
			}
			for _, b := range bad.Rows {
				if b.Code != tc.code {
					t.Errorf("code %s: %v", b.Code, b.Err)
				}
			}
			if after := dump(t, db); after != before {
				t.Errorf("changed:\n%s%s", before, after)
			}
			x, err := h.Exchange(t.Context(), nil, outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 10})
			if err != nil || !errors.As(x.ClaimErr, &bad) || len(x.Claimed) != 0 {
				t.Fatalf("exchange: %+v, %v", x, err)
			}
			aside, err := h.SetAside(t.Context(), bad.Rows)
			if err != nil || !slices.Equal(aside, []int64{rows[1], rows[3]}) {
				t.Fatalf("set aside %v, %v", aside, err)
			}
			good := claim(t, h, 10)
			if !slices.Equal(rowsOf(good), []int64{rows[0], rows[2], rows[4]}) || good[0].Attempts != 1 {
				t.Errorf("then claimed %+v", good)
			}
			var reason string
			if err := db.QueryRow(`SELECT quarantine_reason FROM dovecote_deliveries WHERE event_row_id = ?`, rows[1]).Scan(&reason); err != nil || !strings.HasPrefix(reason, tc.code+": ") {
				t.Errorf("reason %q, %v", reason, err)
			}
		})
	}
}

func TestDueTimesInAnyFormNeverStall(t *testing.T) {
	for _, form := range []string{"garbage", "", "0", "2020-01-01", "2020-01-01T00:00:00Z", "2020-01-01 00:00:00", "\x00", "9999-12-31T23:59:59.999999Z", "-1"} {
		for _, state := range []string{"pending", "claimed"} {
			t.Run(fmt.Sprintf("%s %q", state, form), func(t *testing.T) {
				s := outboxtest.NewSpoiled(t)
				db := outboxtest.Producer(t, s.Path())
				rows := outboxtest.Enqueue(t, db, events("acme", 3)...)
				if state == "pending" {
					must(t, db, `UPDATE dovecote_deliveries SET available_at = ? WHERE event_row_id = ?`, form, rows[1])
				} else {
					must(t, db, `UPDATE dovecote_deliveries SET state = 'claimed', claim_token = randomblob(16), claimed_by = 'x', claim_expires_at = ? WHERE event_row_id = ?`, form, rows[1])
				}
				want := []int64{rows[0], rows[2]}
				if form < "2026" { // as SQL compares text
					want = rows
				}
				if got := claim(t, s.AllTenants(), 10); !slices.Equal(rowsOf(got), want) {
					t.Errorf("claimed %v, want %v", rowsOf(got), want)
				}
				if _, err := s.AllTenants().Due(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestAVanishedCandidateTakesTheBatchBack(t *testing.T) {
	for _, tc := range []struct{ name, when, trap string }{
		{"between selection and reading", "json_each", `DELETE FROM dovecote_deliveries WHERE event_row_id = 2`},
		{"between reading and writing", "SET state = 'claimed'", `DELETE FROM dovecote_deliveries WHERE event_row_id = 2`},
		{"settled between reading and writing", "SET state = 'claimed'",
			`UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '2026-01-01T00:00:00.000000Z' WHERE event_row_id = 2`},
		{"put off between reading and writing", "SET state = 'claimed'",
			`UPDATE dovecote_deliveries SET available_at = '2090-01-01T00:00:00.000000Z' WHERE event_row_id = 2`},
	} {
		for _, n := range []int{3, 30} { // row by row, and in one statement
			t.Run(fmt.Sprintf("%s of %d rows", tc.name, n), func(t *testing.T) {
				var faults outboxtest.Faults
				s := outboxtest.NewStore(t, func(o *outbox.Options) { o.Driver = faults.Connector })
				db := outboxtest.Producer(t, s.Path())
				outboxtest.Enqueue(t, db, events("acme", n)...)
				before := dump(t, db)
				faults.Before(func(query string, run func(string) error) {
					if strings.Contains(query, tc.when) && !strings.HasPrefix(query, "EXPLAIN") {
						faults.Before(nil)
						if err := run(tc.trap); err != nil {
							t.Error(err)
						}
					}
				})
				_, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, n)
				if err == nil || !strings.Contains(err.Error(), "vanished") {
					t.Fatal(err)
				}
				if after := dump(t, db); after != before {
					t.Errorf("changed:\n%s%s", before, after)
				}
				if c := claim(t, s.AllTenants(), n); len(c) != n || c[0].Attempts != 1 {
					t.Errorf("%+v", c)
				}
			})
		}
	}
}

func TestOverflowIsNamedWithItsRow(t *testing.T) {
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	rows := outboxtest.Enqueue(t, db, events("acme", 2)...)
	must(t, db, `UPDATE dovecote_deliveries SET attempts = ? WHERE event_row_id = ?`, int64(math.MaxInt64), rows[1])
	_, err := s.AllTenants().Claim(t.Context(), "w", time.Minute, 2)
	var overflow *outbox.CounterOverflowError
	if !errors.As(err, &overflow) || overflow.Row != rows[1] {
		t.Fatal(err)
	}
	must(t, db, `UPDATE dovecote_deliveries SET attempts = ? WHERE event_row_id = ?`, int64(math.MaxInt64-1), rows[1])
	if c := claim(t, s.AllTenants(), 2); c[1].Attempts != math.MaxInt64 || c[0].Attempts != 1 {
		t.Fatalf("%+v", c)
	}
}
