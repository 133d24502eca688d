package outbox_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// machine drives a store and the model through the same steps. A failure is shrunk,
// and printed with the flag that replays it (-rapid.seed, -rapid.failfile).
type machine struct {
	model
	ctx     context.Context
	store   *outbox.Store
	db      *sql.DB
	handles map[string]*outbox.Handle // by tenant, "" for all
	entropy brokenEntropy
}

// brokenEntropy is the system's, unless it is broken.
type brokenEntropy struct{ broken bool }

func (e *brokenEntropy) Read(p []byte) (int, error) {
	if e.broken {
		return 0, io.ErrUnexpectedEOF
	}
	return rand.Read(p)
}

func newMachine(t *testing.T, path string) *machine {
	m := &machine{ctx: t.Context()}
	var err error
	m.store, err = outbox.Open(t.Context(), path, outbox.Options{Entropy: &m.entropy, Now: func() time.Time { return m.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.store.Close() })
	m.db = outboxtest.Producer(t, m.store.Path())
	m.db.SetMaxOpenConns(1)
	m.handles = map[string]*outbox.Handle{"": m.store.AllTenants()}
	for _, tenant := range tenants {
		h, err := m.store.Tenant(tenant)
		if err != nil {
			t.Fatal(err)
		}
		m.handles[tenant] = h
	}
	return m
}

func (m *machine) exec(t *rapid.T, query string, args ...any) {
	if _, err := m.db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// reset empties the file for the next run, which has the same row ids.
func (m *machine) reset(t *rapid.T) {
	m.exec(t, `DELETE FROM dovecote_deliveries`)
	m.exec(t, `DELETE FROM dovecote_events`)
	m.exec(t, `UPDATE sqlite_sequence SET seq = 0`)
	m.model = model{now: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), rows: map[int64]*modelRow{}, used: map[outbox.Token]bool{}}
	m.entropy.broken = false
}

var (
	tenants    = []string{"acme", "zenith"}
	drawTenant = rapid.SampledFrom(tenants)
	drawHandle = rapid.SampledFrom([]string{"", "", "acme", "zenith"})
	drawDelay  = rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second})
	drawAction = rapid.SampledFrom(actions)
)

// drawRow is a row that there is, or one that there is not.
func (m *machine) drawRow(t *rapid.T) int64 {
	rows := append(m.visible(""), 1<<40)
	return rapid.SampledFrom(rows).Draw(t, "row")
}

func (m *machine) drawRows(t *rapid.T) []int64 {
	rows := make([]int64, rapid.IntRange(1, 4).Draw(t, "rows"))
	for i := range rows {
		rows[i] = m.drawRow(t)
	}
	return rows
}

// enqueue enqueues one event: a new one, a replay or a conflict.
func (m *machine) enqueue(t *rapid.T) {
	tenant, id := drawTenant.Draw(t, "tenant"), fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "id"))
	m.enqueueOne(t, tenant, id, rapid.IntRange(1, 3).Draw(t, "variant")/2)
}

// enqueueMany makes a batch large enough for statements that take whole sets.
func (m *machine) enqueueMany(t *rapid.T) {
	tenant := drawTenant.Draw(t, "tenant")
	for id := range 12 {
		m.enqueueOne(t, tenant, fmt.Sprint("many ", id), 0)
	}
}

func (m *machine) enqueueOne(t *rapid.T, tenant, id string, variant int) {
	e := event(tenant, id)
	e.Subject = variantSubject(variant)
	tx, err := outbox.Begin(m.ctx, m.db)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	got, err := outbox.Enqueue(m.ctx, tx, e)
	row, there := m.identity(tenant, id)
	switch {
	case there == nil:
		if err != nil || got.Outcome != outbox.Enqueued || m.rows[got.Row] != nil {
			t.Fatalf("enqueue: %+v, %v", got, err)
		}
		// The producer's clock is the database's own; the model's is another.
		if _, err := tx.Exec(`UPDATE dovecote_deliveries SET available_at = ? WHERE event_row_id = ?`, m.now.Format(stored), got.Row); err != nil {
			t.Fatal(err)
		}
		m.rows[got.Row] = &modelRow{tenant: tenant, id: id, variant: variant, state: outbox.Pending, due: m.now}
	case there.undecodable || there.variant != variant:
		var conflict *outbox.IdempotencyConflictError
		if !errors.As(err, &conflict) || conflict.Row != row {
			t.Fatalf("enqueue: %v, want a conflict with row %d", err, row)
		}
	case err != nil || got.Outcome != outbox.AlreadyEnqueued || got.Row != row:
		t.Fatalf("enqueue: %+v, %v, want a replay of row %d", got, err, row)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

const stored = "2006-01-02T15:04:05.000000Z"

func drawClaim(t *rapid.T) outbox.ClaimRequest {
	return outbox.ClaimRequest{Worker: "w", Lease: drawDelay.Draw(t, "lease"), Limit: rapid.SampledFrom([]int{1, 2, 5, 30}).Draw(t, "limit")}
}

func (m *machine) claim(t *rapid.T) {
	tenant, r := drawHandle.Draw(t, "handle"), drawClaim(t)
	got, err := m.handles[tenant].Claim(m.ctx, r.Worker, r.Lease, r.Limit)
	if err := m.claimed(tenant, r, !m.entropy.broken, got, err); err != nil {
		t.Fatal(err)
	}
}

// drawToken is the row's own token, one that was superseded, another row's, or none.
func (m *machine) drawToken(t *rapid.T, row int64) outbox.Token {
	var choices []outbox.Token
	if r := m.rows[row]; r != nil {
		choices = append(choices, r.token, r.token, r.token)
		if n := len(r.old); n > 0 {
			choices = append(choices, r.old[n-1])
		}
	}
	if other := m.rows[m.drawRow(t)]; other != nil {
		choices = append(choices, other.token)
	}
	return rapid.SampledFrom(append(choices, outbox.Token{})).Draw(t, "token")
}

func (m *machine) drawSettlements(t *rapid.T) []outbox.Settlement {
	if rapid.IntRange(0, 4).Draw(t, "all") == 0 {
		return m.acknowledgeAll()
	}
	var batch []outbox.Settlement
	for _, row := range m.drawRows(t) {
		batch = append(batch, outbox.Settlement{Row: row, Token: m.drawToken(t, row), Action: drawAction.Draw(t, "action"),
			Delay: drawDelay.Draw(t, "delay"), Failure: outbox.Failure{Code: "timeout", Detail: "no answer"}, Reason: "rejected: no"})
	}
	return batch
}

// acknowledgeAll is an acknowledgement for each claimed row, expired or not.
func (m *machine) acknowledgeAll() []outbox.Settlement {
	var batch []outbox.Settlement
	for _, row := range m.visible("") {
		if r := m.rows[row]; r.state == outbox.InClaim {
			batch = append(batch, outbox.Settlement{Row: row, Token: r.token, Action: outbox.Ack})
		}
	}
	return batch
}

func (m *machine) settled(t *rapid.T, tenant string, batch []outbox.Settlement, got []outbox.Settled) {
	if len(got) != len(batch) {
		t.Fatalf("%d outcomes of %d settlements", len(got), len(batch))
	}
	for i, s := range batch {
		want := m.settle(tenant, s)
		var expires time.Time
		if want == nil && s.Action == outbox.Renew {
			expires = m.rows[s.Row].expires
		}
		if got[i].Row != s.Row || !sameOutcome(got[i].Err, want) || !got[i].Expires.Equal(expires) {
			t.Fatalf("settlement %d: %+v, want %v, %v", i, got[i], want, expires)
		}
	}
}

func (m *machine) settleSome(t *rapid.T) {
	tenant, batch := drawHandle.Draw(t, "handle"), m.drawSettlements(t)
	got, err := m.handles[tenant].Settle(m.ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	m.settled(t, tenant, batch, got)
}

func (m *machine) exchange(t *rapid.T) {
	tenant, batch, r := drawHandle.Draw(t, "handle"), m.drawSettlements(t), drawClaim(t)
	got, err := m.handles[tenant].Exchange(m.ctx, batch, r)
	if err != nil {
		t.Fatal(err)
	}
	m.settled(t, tenant, batch, got.Settled)
	if err := m.claimed(tenant, r, !m.entropy.broken, got.Claimed, got.ClaimErr); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) pass(t *rapid.T) {
	m.now = m.now.Add(drawDelay.Draw(t, "time"))
}

func (m *machine) toggleEntropy(*rapid.T) { m.entropy.broken = !m.entropy.broken }

// spoil makes a row one that cannot be claimed.
func (m *machine) spoil(t *rapid.T) {
	row := m.drawRow(t)
	r := m.rows[row]
	switch {
	case r == nil:
	case rapid.Bool().Draw(t, "overflow"):
		m.exec(t, `UPDATE dovecote_deliveries SET attempts = 9223372036854775807 WHERE event_row_id = ?`, row)
		r.attempts = math.MaxInt64
	default:
		m.exec(t, `UPDATE dovecote_events SET extensions = '{' WHERE row_id = ?`, row)
		r.undecodable = true
	}
}

func (m *machine) setAside(t *rapid.T) {
	tenant, rows := drawHandle.Draw(t, "handle"), m.drawRows(t)
	slices.Sort(rows)
	rows = slices.Compact(rows)
	var bad []outbox.BadRow
	for _, row := range rows {
		bad = append(bad, outbox.BadRow{Row: row, Code: "undecodable", Err: io.EOF})
	}
	got, err := m.handles[tenant].SetAside(m.ctx, bad)
	if want := m.model.setAside(tenant, rows, "undecodable: EOF"); err != nil || !slices.Equal(got, want) {
		t.Fatalf("set aside %v, %v, want %v", got, err, want)
	}
}

func (m *machine) operated(t *rapid.T, got []outbox.RowResult, err error, rows []int64, want func(row int64) error) {
	if err != nil || len(got) != len(rows) {
		t.Fatalf("%v, %v", got, err)
	}
	for i, row := range rows {
		if want := want(row); got[i].Row != row || !sameOutcome(got[i].Err, want) {
			t.Fatalf("row %d: %v, want %v", row, got[i].Err, want)
		}
	}
}

func (m *machine) requeueSome(t *rapid.T) {
	tenant, rows := drawHandle.Draw(t, "handle"), m.drawRows(t)
	got, err := m.handles[tenant].Requeue(m.ctx, rows)
	m.operated(t, got, err, rows, func(row int64) error { return m.requeue(tenant, row) })
}

func (m *machine) quarantineSome(t *rapid.T) {
	tenant, rows := drawHandle.Draw(t, "handle"), m.drawRows(t)
	got, err := m.handles[tenant].QuarantinePending(m.ctx, rows, "later")
	m.operated(t, got, err, rows, func(row int64) error { return m.dismiss(tenant, row, "later") })
}

func (m *machine) pruneSome(t *rapid.T) {
	tenant := drawHandle.Draw(t, "handle")
	r := outbox.PruneRequest{Batch: rapid.IntRange(1, 5).Draw(t, "batch"), DryRun: rapid.Bool().Draw(t, "dry run")}
	if rapid.Bool().Draw(t, "delivered") {
		r.Delivered = drawDelay.Draw(t, "age")
	}
	if rapid.Bool().Draw(t, "quarantined") {
		r.Quarantined = drawDelay.Draw(t, "age")
	}
	got, err := m.handles[tenant].Prune(m.ctx, r)
	if want := m.prune(tenant, r); err != nil || got != want {
		t.Fatalf("pruned %+v, %v, want %+v", got, err, want)
	}
}

// compare holds the file to the model after each step: every row, and what one of
// the handles says of all of them.
func (m *machine) compare(t *rapid.T) {
	m.comparePage(t, "", m.handles[""])
	tenant := drawHandle.Draw(t, "looks")
	h := m.handles[tenant]
	m.comparePage(t, tenant, h)
	m.compareCounts(t, tenant, h)
	m.compareDue(t, tenant, h)
	m.compareCheck(t, tenant, h)
}

func (m *machine) comparePage(t *rapid.T, tenant string, h *outbox.Handle) {
	page, err := h.Page(m.ctx, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	rows := m.visible(tenant)
	if len(page) != len(rows) {
		t.Fatalf("handle %q: %d rows, want %v", tenant, len(page), rows)
	}
	for i, row := range rows {
		r, got := m.rows[row], page[i]
		want := outbox.Delivery{State: r.state, AvailableAt: r.due, Attempts: r.attempts, ClaimExpires: r.expires,
			FailureCode: r.failure, DeliveredAt: r.delivered, QuarantinedAt: r.quarantined, QuarantineReason: r.reason}
		d := got.Delivery
		if (d.ClaimedBy != "") != (r.state == outbox.InClaim) || (d.FailureDetail != "") != (r.failure != "") {
			t.Fatalf("row %d: %+v", row, d)
		}
		d.ClaimedBy, d.FailureDetail = "", ""
		if got.Row != row || d != want || got.Orphan || (got.DecodeErr != nil) != r.undecodable {
			t.Fatalf("row %d: %+v (%v)\nwant %+v", row, d, got.DecodeErr, want)
		}
	}
}

func (m *machine) compareCounts(t *rapid.T, tenant string, h *outbox.Handle) {
	got, err := h.Stats(m.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var want outbox.Stats
	for _, row := range m.visible(tenant) {
		switch r := m.rows[row]; r.state {
		case outbox.Pending:
			want.Pending++
		case outbox.InClaim:
			want.Claimed++
			if _, expired := m.candidate(r); expired {
				want.Expired++
			}
		case outbox.Delivered:
			want.Delivered++
		case outbox.Quarantined:
			want.Quarantined++
		}
	}
	if got.Pending != want.Pending || got.Claimed != want.Claimed || got.Expired != want.Expired ||
		got.Delivered != want.Delivered || got.Quarantined != want.Quarantined || got.Orphans != 0 {
		t.Fatalf("handle %q: counted %+v, want %+v", tenant, got, want)
	}
}

func (m *machine) compareDue(t *rapid.T, tenant string, h *outbox.Handle) {
	got, err := h.Due(m.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var next time.Time
	for _, row := range m.visible(tenant) {
		r := m.rows[row]
		from, _ := m.candidate(r)
		if (r.state == outbox.Pending || r.state == outbox.InClaim) && (next.IsZero() || from.Before(next)) {
			next = from
		}
	}
	ready := !next.IsZero() && !next.After(m.now)
	if got.Ready != ready || !ready && !got.Next.Equal(next) {
		t.Fatalf("handle %q: %+v, want ready %v, next %v", tenant, got, ready, next)
	}
}

// compareCheck wants no finding but the events that were spoiled.
func (m *machine) compareCheck(t *rapid.T, tenant string, h *outbox.Handle) {
	got, err := h.Check(m.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b outbox.Finding) int { return cmp.Compare(a.Row, b.Row) })
	var want []int64
	for _, row := range m.visible(tenant) {
		if m.rows[row].undecodable {
			want = append(want, row)
		}
	}
	if !slices.EqualFunc(got, want, func(f outbox.Finding, row int64) bool { return f.Row == row && f.Rule == outbox.CheckUndecodable }) {
		t.Fatalf("handle %q: %+v, want rows %v to be undecodable", tenant, got, want)
	}
}

// foreignFile is a file as the other library installs it, with its indexes alone.
func foreignFile(t *testing.T) string {
	script, err := os.ReadFile("testdata/foreign_v2.sql")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "outbox.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	must(t, db, string(script))
	return path
}

func TestRandomStepsAgreeWithTheModel(t *testing.T) {
	for name, file := range map[string]string{"our file": outboxtest.NewFile(t), "another library's": foreignFile(t)} {
		t.Run(name, func(t *testing.T) { randomSteps(t, newMachine(t, file)) })
	}
}

func randomSteps(t *testing.T, m *machine) {
	rapid.Check(t, func(t *rapid.T) {
		m.reset(t)
		t.Repeat(map[string]func(*rapid.T){
			"":               m.compare,
			"enqueue":        m.enqueue,
			"enqueue more":   m.enqueue,
			"enqueue many":   m.enqueueMany,
			"claim":          m.claim,
			"claim more":     m.claim,
			"settle":         m.settleSome,
			"settle more":    m.settleSome,
			"exchange":       m.exchange,
			"exchange more":  m.exchange,
			"time passes":    m.pass,
			"time passes on": m.pass,
			"entropy":        m.toggleEntropy,
			"spoil":          m.spoil,
			"set aside":      m.setAside,
			"requeue":        m.requeueSome,
			"quarantine":     m.quarantineSome,
			"prune":          m.pruneSome,
		})
	})
}
