package relay

import (
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

func TestCommittedEventsReachTheBrokerAndAreAcked(t *testing.T) {
	run(t, nil, func(t *testing.T, r *rig) {
		rows := r.enqueue(t, "orders", 3000)
		eventually(t, 10*time.Second, "all delivered", func() bool {
			return r.count(t, outbox.Delivered) == len(rows)
		})
		for _, row := range rows {
			if n := r.broker.copies[row]; n != 1 {
				t.Fatalf("row %d left %d times", row, n)
			}
		}
		if len(r.broker.ids) != len(rows) {
			t.Errorf("%d message ids for %d rows", len(r.broker.ids), len(rows))
		}
		if s := r.broker.subjects[rows[0]]; s != "ev.orders" {
			t.Errorf("subject %q", s)
		}
		if err := r.stop(t); err != nil {
			t.Error(err)
		}
	})
}
