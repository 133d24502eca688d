package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// silent makes the broker answer nothing until it is told to.
func (b *fakeBroker) silent() {
	b.set(func(b *fakeBroker) {
		b.behave = func(*Message) answer { return answer{Result: Result{Sent: true}, never: true} }
	})
}

func TestLeasesOfRowsInFlightAreRenewed(t *testing.T) {
	run(t, func(o *Options) { o.Lease = 2 * time.Second }, func(t *testing.T, r *rig) {
		r.broker.silent()
		rows := r.enqueue(t, "orders", 50)
		time.Sleep(time.Minute)
		for _, row := range rows {
			if d := r.delivery(t, row); d.State != outbox.InClaim || d.Attempts != 1 {
				t.Fatalf("row %d: %+v", row, d)
			}
		}
		r.broker.answerAll(Result{Class: Accepted, Sent: true})
		eventually(t, time.Second, "delivered", func() bool { return r.count(t, outbox.Delivered) == len(rows) })
		if n := r.metric(t, "relay_lost_claims_total"); n != 0 {
			t.Errorf("%v claims lost", n)
		}
		// In batches: a turn for all of them each half lease, not one for each.
		if turns, _ := r.seam.counts(); turns > 200 {
			t.Errorf("%d turns", turns)
		}
	})
}

func TestLostClaimsAreCountedAndLeftAlone(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steal string // what happened to the row meanwhile
		state outbox.State
	}{
		{"claimed by another worker", `UPDATE dovecote_deliveries SET claim_token = randomblob(16), claimed_by = 'other'`, outbox.InClaim},
		{"retried by another worker", `UPDATE dovecote_deliveries SET state = 'pending', available_at = '2999-01-01T00:00:00.000000Z',
			claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL`, outbox.Pending},
		{"delivered by another worker", `UPDATE dovecote_deliveries SET state = 'delivered', delivered_at = '2020-01-01T00:00:00.000000Z',
			claim_token = NULL, claimed_by = NULL, claim_expires_at = NULL`, outbox.Delivered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, r *rig) {
				r.broker.silent()
				row := r.enqueue(t, "orders", 1)[0]
				eventually(t, time.Second, "claimed", func() bool { return r.delivery(t, row).State == outbox.InClaim })
				r.exec(t, tc.steal)
				before := r.delivery(t, row)
				r.broker.answerAll(Result{Class: Failed, Code: CodePublishTimeout, Sent: true})
				eventually(t, time.Second, "claim lost", func() bool { return r.metric(t, "relay_lost_claims_total") == 1 })
				if d := r.delivery(t, row); d != before || d.State != tc.state {
					t.Errorf("was %+v, is %+v", before, d)
				}
				if n := r.metric(t, "relay_settled_total", "outcome", "retried"); n != 0 {
					t.Errorf("%v retries counted", n)
				}
			})
		})
	}
}

// frozen is a relay that stood still for longer than its leases, as after SIGSTOP:
// the outbox let nothing through meanwhile.
func TestRowOfALostClaimIsNotPublishedTwiceAtOnce(t *testing.T) {
	run(t, func(o *Options) { quick(o); o.Lease = time.Second }, func(t *testing.T, r *rig) {
		r.broker.silent()
		row := r.enqueue(t, "orders", 1)[0]
		eventually(t, time.Second, "published", func() bool { return len(r.broker.published(row)) == 1 })
		// The lease ends before it can be renewed, and nobody else takes the row.
		r.exec(t, `UPDATE dovecote_deliveries SET claim_expires_at = '2020-01-01T00:00:00.000000Z'`)
		eventually(t, 10*time.Second, "claim lost and taken again", func() bool { return r.delivery(t, row).Attempts > 1 })
		time.Sleep(5 * time.Second)
		if n := len(r.broker.published(row)); n != 1 {
			t.Fatalf("published %d times while the first publish was unanswered", n)
		}
		if d := r.delivery(t, row); d.FailureCode != string(CodeInProcess) {
			t.Errorf("%+v", d)
		}
		// Its late answer is good for the row all the same.
		r.broker.answerAll(Result{Class: Accepted, Sent: true})
		eventually(t, 10*time.Second, "delivered", func() bool { return r.delivery(t, row).State == outbox.Delivered })
		if n := len(r.broker.published(row)); n != 1 {
			t.Errorf("published %d times", n)
		}
	})
}

func TestRowWhoseLeaseEndedUnsentIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		s := &sender{pub: r.broker, base: r.relay.base}
		done := make(chan Result, 1)
		e := &entry{row: 7}
		e.state.Store(queued)
		e.until.Store(int64(time.Since(r.relay.base)))
		s.send(t.Context(), handOver{entries: []*entry{e}, done: done})
		if res := <-done; res.Class != 0 || res.Sent || res.Row != 7 {
			t.Errorf("%+v", res)
		}
		if n := len(r.broker.published(7)); n != 0 {
			t.Errorf("published %d times", n)
		}
	})
}
