package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"modernc.org/sqlite"
)

// appDB opens the file as a producer would.
func appDB(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	c, err := sqlite.NewConnector(fileURI(path, "mode=rw", "_pragma=busy_timeout(5000)", "_pragma=foreign_keys(1)"))
	if err != nil {
		tb.Fatal(err)
	}
	db := sql.OpenDB(c)
	tb.Cleanup(func() { db.Close() })
	return db
}

func sample(id string) Event {
	return Event{Tenant: "acme", Stream: "orders", ID: id, Source: "/orders", Type: "com.example.order.placed",
		ContentType: "application/json", Data: JSON([]byte(`{"id":1}`))}
}

func enqueueN(tb testing.TB, s *Store, n int) []int64 {
	tb.Helper()
	db := appDB(tb, s.file)
	tx, err := Begin(context.Background(), db)
	if err != nil {
		tb.Fatal(err)
	}
	events := make([]Event, n)
	for i := range events {
		events[i] = sample(fmt.Sprintf("%d", i+1))
	}
	receipts, err := EnqueueAll(context.Background(), tx, events)
	if err != nil {
		tb.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
	rows := make([]int64, n)
	for i, r := range receipts {
		rows[i] = r.Row
	}
	return rows
}

func TestLifecycle(t *testing.T) {
	s := open(t, Options{})
	rows := enqueueN(t, s, 10)
	h := s.AllTenants()
	due, err := h.Due(t.Context())
	if err != nil || !due.Ready {
		t.Fatalf("%+v, %v", due, err)
	}
	claimed, err := h.Claim(t.Context(), "w", time.Minute, 7)
	if err != nil || len(claimed) != 7 || claimed[0].Row != rows[0] {
		t.Fatalf("%+v, %v", claimed, err)
	}
	x, err := h.Exchange(t.Context(), []Settlement{
		{Row: claimed[0].Row, Token: claimed[0].Token, Action: Ack},
		{Row: claimed[1].Row, Token: claimed[1].Token, Action: Retry, Delay: time.Minute, Failure: Failure{"timeout", "no answer"}},
		{Row: claimed[2].Row, Token: claimed[2].Token, Action: Release},
		{Row: claimed[3].Row, Token: claimed[3].Token, Action: Renew, Delay: time.Hour},
		{Row: claimed[4].Row, Token: claimed[4].Token, Action: Quarantine, Reason: "bad"},
		{Row: claimed[5].Row, Token: claimed[4].Token, Action: Ack},
		{Row: claimed[0].Row, Token: claimed[0].Token, Action: Ack},
		{Row: 99, Token: claimed[0].Token, Action: Ack},
	}, ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 100})
	if err != nil || x.ClaimErr != nil {
		t.Fatal(err, x.ClaimErr)
	}
	for _, s := range x.Settled {
		t.Log(s)
	}
	if len(x.Claimed) != 4 || x.Claimed[0].Row != claimed[2].Row || x.Claimed[0].Attempts != 2 {
		t.Fatalf("%+v", x.Claimed)
	}
	t.Log(x.Held)
}
