package relay

import (
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// renewals appends to dst the rows in flight past half of their lease, no more
// than a batch, each with its renewal as its settlement. It sets the time of the
// next look.
func (l *loop) renewals(dst []*entry, now time.Time) []*entry {
	if now.Before(l.renewAt) {
		return dst
	}
	l.renewAt = now.Add(l.o.Lease / 8)
	half := int64(now.Add(l.o.Lease / 2).Sub(l.r.base))
	for _, e := range l.win.rows {
		if !e.unanswered || e.until.Load() > half {
			continue
		}
		if len(dst) == l.o.Batch {
			l.renewAt = now // the others are next
			break
		}
		e.settlement = outbox.Settlement{Row: e.row, Token: e.token, Action: outbox.Renew, Delay: l.o.Lease}
		dst = append(dst, e)
	}
	return dst
}
