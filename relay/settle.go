package relay

import (
	"fmt"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// result takes in one publish's outcome and decides how its row is settled.
func (l *loop) result(res Result, now time.Time) {
	if res.At.IsZero() {
		res.At = now
	}
	e := l.win.rows[res.Row]
	if e == nil || !e.unanswered {
		l.lateResult(res)
		return
	}
	l.win.answered(e)
	if res.Class == 0 {
		l.expiredUnsent(e, now)
		return
	}
	e.stream.result(res.Class.String()).Inc()
	if res.Sent || res.Class == Accepted {
		l.m.publishTime.Observe(res.At.Sub(e.sentAt).Seconds())
	}
	if res.Class != Unavailable {
		l.closeBreaker(now)
	}
	if res.Class != Blocked {
		l.probeEnded(e, res.Class == Accepted, now)
	}
	switch res.Class {
	case Accepted:
		l.accepted(e, res, now)
	case Rejected:
		l.quarantine(e, res.Code, res.Detail, now)
	case Blocked:
		l.blocked(e, res, now)
	case Unavailable:
		l.unavailable(e, res, now)
	default:
		l.failed(e, res, now)
	}
}

// lateResult is for a row whose claim was lost in the meantime. There is nothing
// to settle, but what the broker has it has.
func (l *loop) lateResult(res Result) {
	delete(l.win.late, res.Row)
	if res.Class == Accepted {
		l.stored.add(res.Row)
	}
}

// expiredUnsent is for a row whose lease ended before the sender came to it. The
// settlement will most likely find the claim lost, and count it.
func (l *loop) expiredUnsent(e *entry, now time.Time) {
	l.probeEnded(e, false, now)
	l.win.decide(e, outbox.Settlement{Action: outbox.Release}, now)
}

func (l *loop) accepted(e *entry, res Result, now time.Time) {
	e.accepted = true
	lag := max(res.At.Round(0).Sub(e.enqueuedAt), 0)
	l.m.lag.Observe(lag.Seconds())
	l.r.status.published(lag)
	if res.Duplicate {
		l.m.duplicates.Inc()
	}
	l.win.decide(e, outbox.Settlement{Action: outbox.Ack}, now)
}

// failed retries e, unless this was its last attempt. A row that waited out a
// blocked route or an outage has used up attempts without fault of its own, so it takes
// two failures running to give up.
func (l *loop) failed(e *entry, res Result, now time.Time) {
	limit := int64(l.o.MaxAttempts)
	if limit > 0 && e.attempts >= limit && e.lastFailure.Class() == Failed {
		l.quarantine(e, CodeAttemptsExhausted,
			fmt.Sprintf("%d attempts, the last one %s: %s", e.attempts, res.Code, res.Detail), now)
		return
	}
	l.notes.note(now, noteFailed, res.Code, e.row, res.Detail)
	l.retry(e, res.Code, res.Detail, l.o.Backoff.delay(e.attempts), now)
}

func (l *loop) retry(e *entry, code Code, detail string, delay time.Duration, now time.Time) {
	l.win.decide(e, outbox.Settlement{
		Action:  outbox.Retry,
		Delay:   grouped(now.Sub(l.r.base), delay),
		Failure: outbox.Failure{Code: string(code), Detail: detail},
	}, now)
}

// dueGroup is the grid of due times: rows within it come due together, and
// cost one turn instead of one each.
const dueGroup = 100 * time.Millisecond

// grouped lengthens the delay of a row that is put back at the time at, so that it
// ends on the grid. Short delays stay as they are.
func grouped(at, delay time.Duration) time.Duration {
	if delay < 10*dueGroup {
		return delay
	}
	return wholeMillis(delay + dueGroup - 1 - (at+delay-1)%dueGroup)
}

// release gives e back: it is known not to have left.
func (l *loop) release(e *entry, now time.Time) {
	l.breaker.released++
	l.probeEnded(e, false, now)
	l.win.decide(e, outbox.Settlement{Action: outbox.Release}, now)
}

func (l *loop) quarantine(e *entry, code Code, why string, now time.Time) {
	e.code = code
	l.win.decide(e, outbox.Settlement{Action: outbox.Quarantine, Reason: string(code) + ": " + why}, now)
}

// quarantined tells of a quarantine that has been written.
func (l *loop) quarantined(now time.Time, code Code, row int64, stream, reason string) {
	l.notes.note(now, noteQuarantined, code, row, reason)
	l.m.quarantined.WithLabelValues(string(code)).Inc()
	l.r.status.quarantined(RecentQuarantine{At: now, Row: row, Stream: stream, Code: string(code), Reason: reason})
}

// settled takes in the outcomes of the settlements of entries.
func (l *loop) settled(entries []*entry, out []outbox.Settled, until time.Time, now time.Time) {
	for i, e := range entries {
		var err error
		if i < len(out) {
			err = out[i].Err
		}
		switch {
		case err != nil:
			l.lost(e, err, now)
		case e.settlement.Action == outbox.Renew:
			e.until.Store(int64(until.Sub(l.r.base)))
			l.m.settled[outbox.Renew].Inc()
		default:
			if e.settlement.Action == outbox.Quarantine {
				l.quarantined(now, e.code, e.row, e.streamName, e.settlement.Reason)
			}
			l.m.settled[e.settlement.Action].Inc()
			l.win.remove(e)
		}
	}
}

// lost drops a row whose claim is no longer ours, whatever the reason.
func (l *loop) lost(e *entry, why error, now time.Time) {
	l.m.lostClaims.Inc()
	l.notes.note(now, noteLostClaim, "lost_claim", e.row, why.Error())
	l.probeEnded(e, false, now)
	if e.accepted {
		l.stored.add(e.row)
	}
	l.win.remove(e)
}
