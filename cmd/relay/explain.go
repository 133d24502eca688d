package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
)

// maxLease is the longest lease that a claim can have.
const maxLease = 24 * time.Hour

// explain says in words why a row is where it is, and what happens next. now is
// the database's time.
func (r *rowReport) explain(now time.Time) (why, next string) {
	switch r.State {
	case orphanState:
		return "it has no delivery row, so no relay sees it: its producer inserted the event alone, or something removed the delivery",
			"nothing; relay reconcile --repair makes it pending"
	case string(outbox.Pending):
		why, next = r.explainPending(now)
	case string(outbox.InClaim):
		why, next = r.explainClaimed(now)
	case string(outbox.Delivered):
		return r.explainDelivered(), "nothing; relay prune --delivered AGE removes it"
	case string(outbox.Quarantined):
		return r.explainQuarantined(now)
	default:
		why = fmt.Sprintf("its state %q is none that the schema allows", r.State)
		if r.State == "" && r.DecodeError != "" { // the state is what cannot be read
			why = "it cannot be decoded (" + r.DecodeError + ")"
		}
		return why, "nothing; relay check lists what is wrong with the file"
	}
	if r.DecodeError != "" {
		why += "; it cannot be decoded (" + r.DecodeError + ")"
		next = r.undecodableNext(now)
	}
	return why, next
}

// undecodableNext is what becomes of a row that cannot be decoded: a claim finds
// it by its time alone, which is compared as text, so a time in a wrong form may
// keep the row out of every claim.
func (r *rowReport) undecodableNext(now time.Time) string {
	const quarantines = "a relay quarantines it [undecodable] instead of publishing it"
	column, when := "available_at", r.AvailableAt
	if r.State == string(outbox.InClaim) {
		column, when = "claim_expires_at", r.ClaimExpires
	}
	switch {
	case when == nil && r.State == string(outbox.InClaim):
		return "perhaps nothing: its " + column + " is compared as text, and may never come; set it to now by hand, and the next claim takes it"
	case when == nil:
		return fmt.Sprintf("perhaps nothing: its %s is compared as text, and may never come; set it to now by hand, or set the row aside with relay quarantine %d --reason TEXT", column, r.Row)
	case when.After(now):
		return "in " + roughDuration(when.Sub(now)) + " " + quarantines
	}
	return quarantines
}

func (r *rowReport) explainPending(now time.Time) (why, next string) {
	due := now
	if r.AvailableAt != nil {
		due = *r.AvailableAt
	}
	wait := due.Sub(now)
	switch {
	case r.FailureCode == "" && r.Attempts == 0 && wait > 0:
		why = "it is new, and not due for " + roughDuration(wait)
	case r.FailureCode == "" && r.Attempts == 0:
		why = "it is new and waits for a relay"
	case r.FailureCode == "":
		why = fmt.Sprintf("it was claimed %s and given back unsent", times(r.Attempts))
	case r.FailureCode == outbox.RequeuedCode:
		why = "it was requeued; it had been quarantined: " + oneLine(r.FailureDetail)
	case r.Attempts == 0:
		why = "it was requeued; its last failure was " + r.failure()
	default:
		why = fmt.Sprintf("it was claimed %s; the last try failed: %s", times(r.Attempts), r.failure())
	}
	next = "a relay sends it in its next turn"
	if wait > 0 {
		next = "a relay sends it when it is due, in " + roughDuration(wait)
	}
	if class := relay.Code(r.FailureCode).Class(); class == relay.Blocked || r.FailureCode == string(relay.CodeUnrouted) {
		next += ", if the cause is gone; this kind of failure never quarantines it"
	}
	if remedy := remedies[r.FailureCode]; remedy != "" {
		next += "; " + remedy
	}
	if wait <= 0 && -wait > time.Minute {
		next += fmt.Sprintf("; it is overdue by %s: is a relay running on this file?", roughDuration(-wait))
	}
	return why, next
}

func (r *rowReport) explainClaimed(now time.Time) (why, next string) {
	why = fmt.Sprintf("worker %s claimed it (claim %d)", printable(r.ClaimedBy), r.Attempts)
	if r.ClaimExpires == nil {
		return why, "nothing; it has no lease end, see relay check"
	}
	left := r.ClaimExpires.Sub(now)
	switch {
	case left > maxLease+time.Minute:
		why += fmt.Sprintf(", but its lease ends in %s, longer than any lease: a clock was wrong, or something else wrote the row", roughDuration(left))
		next = "nothing until then; if no relay holds it, set claim_expires_at to now and the next claim takes it"
	case left > 0:
		next = fmt.Sprintf("that worker settles it, or its lease ends in %s and the next claim takes it over", roughDuration(left))
	default:
		why += fmt.Sprintf(" and did not settle it before its lease ended %s ago: it died, hung or lost the database", roughDuration(-left))
		next = "the next claim takes it over; it may be sent twice"
	}
	return why, next
}

func (r *rowReport) explainDelivered() string {
	if r.DeliveredAt == nil {
		return "the broker acknowledged it"
	}
	why := "the broker acknowledged it at " + r.DeliveredAt.Format(time.RFC3339Nano)
	if r.Attempts == 0 {
		return "it was imported as delivered at " + r.DeliveredAt.Format(time.RFC3339Nano)
	}
	if r.EnqueuedAt != nil {
		why += fmt.Sprintf(", %s after it was enqueued", roughDuration(r.DeliveredAt.Sub(*r.EnqueuedAt)))
	}
	return why + ", on claim " + fmt.Sprint(r.Attempts)
}

func (r *rowReport) explainQuarantined(now time.Time) (why, next string) {
	why = "it was set aside"
	if r.QuarantinedAt != nil {
		why += " " + roughDuration(now.Sub(*r.QuarantinedAt)) + " ago"
	}
	why += ": " + oneLine(r.QuarantineReason)
	next = fmt.Sprintf("nothing by itself; relay requeue %d sends it again", r.Row)
	if remedy := remedies[r.code()]; remedy != "" {
		next = "nothing by itself; " + remedy + ", then relay requeue " + fmt.Sprint(r.Row)
	}
	return why, next
}

// failure is the last failure for a person.
func (r *rowReport) failure() string {
	return fmt.Sprintf("%s [%s]", strings.TrimSuffix(oneLine(r.FailureDetail), "."), printable(r.FailureCode))
}

func times(n int64) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// remedies say what a person can do about a code.
var remedies = map[string]string{
	string(relay.CodeTooLarge):          "make such events smaller, or raise max_payload of the server or max_msg_size of the stream",
	string(relay.CodeHeadersTooLarge):   "make its attributes smaller, or use mode structured",
	string(relay.CodeInvalidSubject):    "change the route's template, or the values that it uses",
	string(relay.CodeUndecodable):       "find the producer that wrote it by hand; the row itself cannot be repaired by the relay",
	string(relay.CodeAttemptsExhausted): "find out why the broker did not confirm it (a stream with no_ack, a slow disk)",
	string(relay.CodeCrashLoop):         "find out why every worker that took it ended",
	string(relay.CodeUnrouted):          "add a [[route]] that takes its stream and tenant",
	string(relay.CodeNoStream):          "add the subject to a stream",
	string(relay.CodeInvalidAck):        "something other than JetStream answers on this subject; remove that responder",
	string(relay.CodePermissionDenied):  "permit the relay's user to publish to the subject",
	string(relay.CodeStreamFull):        "make room in the stream or raise its limits",
	string(relay.CodeSealed):            "the stream is sealed; route the events to another one",
	string(relay.CodeWrongStream):       "correct expect_stream or the streams' subjects",
	string(relay.CodePublishTimeout):    "if it repeats, look at the stream's no_ack setting and the server's load",
}
