package outbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// What becomes of rows between the reading and the transaction counts: the claim
// is the one that the transaction would have made by itself.
func TestAnExchangeThatReadAheadClaimsWhatItFinds(t *testing.T) {
	const first = `WHERE event_row_id = 11`
	rows := func(from int64) (list []int64) {
		for row := from; row < from+10; row++ {
			list = append(list, row)
		}
		return list
	}
	for _, tc := range []struct {
		name, change string
		want         []int64
		again        bool // the batch is read again
	}{
		{"nothing happens", `SELECT 1`, rows(11), false},
		{"one is claimed", `UPDATE dovecote_deliveries SET state = 'claimed', attempts = 1, claim_token = zeroblob(16),
			claimed_by = 'other', claim_expires_at = '2099-01-01T00:00:00.000000Z' ` + first, rows(12), true},
		{"one is put off", `UPDATE dovecote_deliveries SET available_at = '2099-01-01T00:00:00.000000Z' ` + first, rows(12), true},
		{"one is claimed and given back", `UPDATE dovecote_deliveries SET attempts = 5, last_failure_code = 'x', last_failure_detail = 'y' ` + first, rows(11), true},
		{"one is quarantined and requeued", `UPDATE dovecote_deliveries SET last_failure_code = 'requeued', last_failure_detail = 'y' ` + first, rows(11), true},
		{"one is delivered", `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = available_at ` + first, rows(12), true},
		{"one is quarantined", `UPDATE dovecote_deliveries SET state = 'quarantined', quarantined_at = available_at, quarantine_reason = 'x' ` + first, rows(12), true},
		{"one is gone", `DELETE FROM dovecote_deliveries ` + first, rows(12), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var faults outboxtest.Faults
			s := outboxtest.NewSpoiled(t, func(o *outbox.Options) { o.Driver = faults.Connector })
			db := outboxtest.Producer(t, s.Path())
			outboxtest.Enqueue(t, db, events("acme", 40)...)
			h := s.AllTenants()
			request := outbox.ClaimRequest{Worker: "w", Lease: time.Minute, Limit: 10}
			x, err := h.Exchange(t.Context(), nil, request)
			if err != nil || len(x.Claimed) != 10 {
				t.Fatalf("%+v, %v", x, err)
			}
			var settle []outbox.Settlement
			for _, c := range x.Claimed {
				settle = append(settle, settlement(c, outbox.Ack))
			}
			changed, reads := false, 0
			var hooked error
			faults.Before(func(query string, _ func(string) error) {
				switch {
				case query == `BEGIN IMMEDIATE` && !changed:
					changed = true
					_, hooked = db.Exec(tc.change)
				case !strings.HasPrefix(query, `EXPLAIN`) && strings.Contains(query, `FROM json_each(?2) AS j CROSS JOIN`):
					reads++
				}
			})
			x, err = h.Exchange(t.Context(), settle, request)
			faults.Before(nil)
			if err != nil || hooked != nil || x.ClaimErr != nil || len(x.Settled) != 10 || !changed {
				t.Fatalf("%+v, %v, %v", x, err, hooked)
			}
			if want := map[bool]int{false: 1, true: 2}[tc.again]; reads != want {
				t.Errorf("the batch was read %d times", reads)
			}
			if got := rowsOf(x.Claimed); !slices.Equal(got, tc.want) {
				t.Errorf("claimed %v, want %v", got, tc.want)
			}
			for _, c := range x.Claimed {
				if n := count(t, db, `SELECT count(*) FROM dovecote_deliveries WHERE event_row_id = ? AND state = 'claimed'
					AND claim_token = ? AND attempts = ?`, c.Row, c.Token[:], c.Attempts); n != 1 {
					t.Errorf("row %d is not stored as it was claimed: %+v", c.Row, c)
				}
				if c.Attempts == 6 && c.LastFailure != "x" {
					t.Errorf("row %d has last failure %q", c.Row, c.LastFailure)
				}
			}
			for _, settled := range x.Settled {
				if settled.Err != nil {
					t.Errorf("%+v", settled)
				}
			}
		})
	}
}
