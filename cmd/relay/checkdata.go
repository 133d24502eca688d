package main

import (
	"context"
	"fmt"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// dataRule is what a broken rule of the data means to an operator. A %d in the
// fix is the row.
type dataRule struct {
	severity jetstream.Severity
	why, fix string
}

const (
	byHand   = "find out what wrote the row: the library and the documented SQL cannot; then correct the row by hand, with the relay stopped"
	setAside = "a relay quarantines it instead of sending it; find its writer, and let it enqueue the event again"
)

var dataRules = map[string]dataRule{
	outbox.CheckIntegrity: {jetstream.SeverityError, "the file is damaged, and events may be lost",
		"stop the relay and the applications, keep a copy of the file, and restore a backup"},
	outbox.CheckConstraint: {jetstream.SeverityError, "rows were written with constraints off; relays cannot rely on them", byHand},
	outbox.CheckForeignKey: {jetstream.SeverityError, "rows were removed with foreign keys off", byHand},
	outbox.CheckOrphan: {jetstream.SeverityError, "no relay ever sees an event without a delivery row",
		"run relay reconcile --repair, and correct the producer that leaves the delivery out"},
	outbox.CheckNoEvent: {jetstream.SeverityError, "there is nothing to send", "delete the delivery row by hand; the event is gone"},
	outbox.CheckTenant:  {jetstream.SeverityError, "a relay of one tenant may send another tenant's event", byHand},
	outbox.CheckRowID:   {jetstream.SeverityError, "paging and claims begin at row 1", byHand},
	outbox.CheckUndecodable: {jetstream.SeverityError, "it can never be sent as it is",
		setAside},
	outbox.CheckTextForBlob:  {jetstream.SeverityWarning, "the data is sent, but it can hold text only", "bind data as BLOB in the producer"},
	outbox.CheckState:        {jetstream.SeverityError, "no relay knows what to do with it", byHand},
	outbox.CheckStateColumns: {jetstream.SeverityError, "what the row says contradicts its state", byHand},
	outbox.CheckFailurePair:  {jetstream.SeverityWarning, "the last failure is not complete", byHand},
	outbox.CheckAttempts:     {jetstream.SeverityError, "attempts cannot be counted further, and a claim refuses the row", byHand},
	outbox.CheckTime:         {jetstream.SeverityError, "it may never become due, or be due at once", byHand},
	outbox.CheckToken:        {jetstream.SeverityError, "its worker cannot settle it", "nothing: it is claimed again when its lease ends"},
	outbox.CheckText:         {jetstream.SeverityWarning, "what the row says about itself cannot be shown", byHand},
	outbox.CheckFarLease: {jetstream.SeverityError, "nothing takes the row over before its lease ends, and this one ends too far ahead: a clock was wrong",
		"if no relay holds it, set its claim_expires_at to the present by hand"},
}

// checkData turns broken invariants into findings.
func checkData(ctx context.Context, h *outbox.Handle, limit int) ([]jetstream.Finding, error) {
	broken, err := h.Check(ctx, limit)
	if err != nil {
		return nil, err
	}
	findings := make([]jetstream.Finding, 0, len(broken))
	for _, b := range broken {
		rule, known := dataRules[b.Rule]
		if !known {
			rule = dataRule{jetstream.SeverityError, "a relay relies on it", byHand}
		}
		f := jetstream.Finding{
			Severity: rule.severity, Subject: "database", Problem: b.Rule + ": " + b.Detail, Why: rule.why, Fix: rule.fix,
		}
		if b.Row != 0 {
			f.Subject = fmt.Sprintf("row %d", b.Row)
		}
		if b.Rule == outbox.CheckUndecodable {
			if err := settleFinding(ctx, h, b.Row, &f); err != nil {
				return nil, err
			}
		}
		findings = append(findings, f)
	}
	if len(broken) == limit {
		findings = append(findings, jetstream.Finding{
			Severity: jetstream.SeverityUnknown, Subject: "database", Problem: fmt.Sprintf("there may be more than these %d findings", limit),
			Why: "the check ended there", Fix: "use --limit to see more",
		})
	}
	return findings, nil
}

// settleFinding lowers the severity for a row that no relay will try to send.
func settleFinding(ctx context.Context, h *outbox.Handle, row int64, f *jetstream.Finding) error {
	e, err := h.Get(ctx, row)
	if err != nil {
		return err
	}
	switch e.Delivery.State {
	case outbox.Quarantined:
		f.Severity, f.Fix = jetstream.SeverityWarning, "find its writer; relay prune --quarantined AGE removes the row"
	case outbox.Delivered:
		f.Severity, f.Fix = jetstream.SeverityWarning, "find out what changed the row after it was sent"
	}
	return nil
}
