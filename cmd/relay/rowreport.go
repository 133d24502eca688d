package main

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// rowReport is one row without its event: where it is and why. Times are null
// where the column is.
type rowReport struct {
	Row              int64      `json:"row"`
	Tenant           string     `json:"tenant"`
	Stream           string     `json:"stream"`
	State            string     `json:"state"` // "orphan" for an event without a delivery row
	EnqueuedAt       *time.Time `json:"enqueued_at"`
	AvailableAt      *time.Time `json:"available_at"`
	Attempts         int64      `json:"attempts"`
	ClaimedBy        string     `json:"claimed_by,omitempty"`
	ClaimExpires     *time.Time `json:"claim_expires_at,omitempty"`
	FailureCode      string     `json:"last_failure_code,omitempty"`
	FailureDetail    string     `json:"last_failure_detail,omitempty"`
	DeliveredAt      *time.Time `json:"delivered_at,omitempty"`
	QuarantinedAt    *time.Time `json:"quarantined_at,omitempty"`
	QuarantineReason string     `json:"quarantine_reason,omitempty"`
	DecodeError      string     `json:"decode_error,omitempty"` // the event is not as stored
}

const orphanState = "orphan"

func newRowReport(e *outbox.Entry) rowReport {
	d := &e.Delivery
	r := rowReport{
		Row: e.Row, Tenant: e.Event.Tenant, Stream: e.Event.Stream, State: string(d.State),
		EnqueuedAt: timeOrNull(e.EnqueuedAt), AvailableAt: timeOrNull(d.AvailableAt), Attempts: d.Attempts,
		ClaimedBy: d.ClaimedBy, ClaimExpires: timeOrNull(d.ClaimExpires),
		FailureCode: d.FailureCode, FailureDetail: d.FailureDetail,
		DeliveredAt: timeOrNull(d.DeliveredAt), QuarantinedAt: timeOrNull(d.QuarantinedAt), QuarantineReason: d.QuarantineReason,
	}
	if e.Orphan {
		r.State = orphanState
	}
	if e.DecodeErr != nil {
		r.DecodeError = e.DecodeErr.Error()
	}
	return r
}

// code is the quarantine's code, or that of the last failure.
func (r *rowReport) code() string {
	if r.State == string(outbox.Quarantined) {
		return quarantineCode(r.QuarantineReason)
	}
	return r.FailureCode
}

// quarantineCode is what stands before ": " in a reason, if it looks like a code.
func quarantineCode(reason string) string {
	code, _, found := strings.Cut(reason, ": ")
	if !found || code == "" || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "other"
	}
	return code
}

// eventReport is an event, exact enough to make it again: extensions with
// their types, and the bytes of data in base64.
type eventReport struct {
	ID           string                     `json:"id"`
	Source       string                     `json:"source"`
	Type         string                     `json:"type"`
	Subject      string                     `json:"subject,omitempty"`
	Time         *time.Time                 `json:"time,omitempty"`
	ContentType  string                     `json:"datacontenttype,omitempty"`
	DataSchema   string                     `json:"dataschema,omitempty"`
	PartitionKey string                     `json:"partitionkey,omitempty"`
	Extensions   map[string]extensionReport `json:"extensions,omitempty"`
	DataKind     string                     `json:"data_kind,omitempty"`   // "json" or "binary"; absent without data
	Data         *string                    `json:"data_base64,omitempty"` // "" is data that is there and empty
}

// extensionReport has the value in its CloudEvents text form.
type extensionReport struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

var dataKinds = map[outbox.DataKind]string{outbox.DataJSON: "json", outbox.DataBinary: "binary"}

func newEventReport(e *outbox.Event) eventReport {
	r := eventReport{
		ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, Time: timeOrNull(e.Time),
		ContentType: e.ContentType, DataSchema: e.DataSchema, PartitionKey: e.PartitionKey,
		DataKind: dataKinds[e.Data.Kind()],
	}
	if e.Data.Kind() != outbox.DataAbsent {
		text := base64.StdEncoding.EncodeToString(e.Data.Bytes())
		r.Data = &text
	}
	if len(e.Extensions) > 0 {
		r.Extensions = make(map[string]extensionReport, len(e.Extensions))
		for name, v := range e.Extensions {
			r.Extensions[name] = extensionReport{v.Type().String(), v.Text()}
		}
	}
	return r
}

// event makes the event again.
func (r *eventReport) event(tenant, stream string) (outbox.Event, error) {
	e := outbox.Event{
		Tenant: tenant, Stream: stream, ID: r.ID, Source: r.Source, Type: r.Type, Subject: r.Subject,
		ContentType: r.ContentType, DataSchema: r.DataSchema, PartitionKey: r.PartitionKey,
	}
	if r.Time != nil {
		e.Time = r.Time.UTC()
	}
	for name, x := range r.Extensions {
		t, ok := outbox.ParseValueType(x.Type)
		if !ok {
			return e, fieldf("event.extensions."+name, "%q is no type", x.Type)
		}
		v, err := outbox.ParseValue(t, x.Value)
		if err != nil {
			return e, fieldf("event.extensions."+name, "%v", err)
		}
		if e.Extensions == nil {
			e.Extensions = map[string]outbox.Value{}
		}
		e.Extensions[name] = v
	}
	return e, r.setData(&e)
}

func (r *eventReport) setData(e *outbox.Event) error {
	if (r.DataKind == "") != (r.Data == nil) {
		return fieldf("event.data_kind", "and data_base64 go together")
	}
	if r.Data == nil {
		return nil
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(*r.Data)
	if err != nil {
		return fieldf("event.data_base64", "is no padded base64")
	}
	switch r.DataKind {
	case "json":
		e.Data = outbox.JSON(raw)
	case "binary":
		e.Data = outbox.Binary(raw)
	default:
		return fieldf("event.data_kind", `must be "json" or "binary"`)
	}
	return nil
}
