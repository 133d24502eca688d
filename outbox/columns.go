package outbox

import "bytes"

// eventInsertColumns are the columns of dovecote_events that an enqueue
// sets, in the order of Event.appendColumns. row_id and enqueued_at come from
// the database, or are added by whoever imports.
const eventInsertColumns = `tenant_id, stream, specversion, event_id, source, event_type,
	subject, occurred_at, datacontenttype, dataschema, partitionkey,
	extensions, data_kind, data`

// eventInsertCount is the number of eventInsertColumns.
const eventInsertCount = 14

const specVersion = "1.0"

// Stored data kinds.
const (
	kindJSON   = "json"
	kindBinary = "binary"
)

// appendColumns appends the stored values of e to args, in the order of
// eventInsertColumns: string, []byte for data (never nil when it is present),
// nil for NULL. e must be valid.
func (e *Event) appendColumns(args []any) []any {
	var occurred, kind, data any
	if !e.Time.IsZero() {
		occurred = formatTime(e.Time)
	}
	switch e.Data.kind {
	case DataJSON:
		kind = kindJSON
	case DataBinary:
		kind = kindBinary
	}
	if kind != nil {
		// Some drivers bind a nil slice as NULL.
		b := e.Data.bytes
		if b == nil {
			b = []byte{}
		}
		data = b
	}
	return append(args,
		e.Tenant, e.Stream, specVersion, e.ID, e.Source, e.Type,
		orNull(e.Subject), occurred, orNull(e.ContentType), orNull(e.DataSchema), orNull(e.PartitionKey),
		e.storedExtensions(), kind, data)
}

// storedExtensions is the value of the extensions column.
func (e *Event) storedExtensions() string {
	if len(e.Extensions) == 0 {
		return "{}"
	}
	return string(appendExtensions(make([]byte, 0, 128*len(e.Extensions)), e.Extensions))
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// sameContent reports whether the stored columns hold the content of e: every
// caller-controlled field and byte, tenant and identity included. It works with
// what any SQLite driver scans, as long as the row has not been left.
func (e *Event) sameContent(c *eventColumns) bool {
	kind := ""
	switch e.Data.kind {
	case DataJSON:
		kind = kindJSON
	case DataBinary:
		kind = kindBinary
	}
	return sameText(c.tenant, e.Tenant) && sameText(c.stream, e.Stream) && sameText(c.specVersion, specVersion) &&
		sameText(c.id, e.ID) && sameText(c.source, e.Source) && sameText(c.typ, e.Type) &&
		sameText(c.subject, e.Subject) && e.sameTime(c.time) && sameText(c.contentType, e.ContentType) &&
		sameText(c.dataSchema, e.DataSchema) && sameText(c.partKey, e.PartitionKey) &&
		sameText(c.extensions, e.storedExtensions()) &&
		sameText(c.dataKind, kind) && (kind == "") == (c.data.v == nil) && sameBytes(c.data.v, e.Data.bytes)
}

// sameText compares a stored value, TEXT or BLOB, with want; NULL equals "".
func sameText(v any, want string) bool {
	switch v := v.(type) {
	case nil:
		return want == ""
	case string:
		return v == want
	case []byte:
		return string(v) == want
	}
	return false
}

func sameBytes(v any, want []byte) bool {
	if b, ok := v.([]byte); ok {
		return bytes.Equal(b, want)
	}
	return sameText(v, string(want))
}

// sameTime compares instants, since Dovecote stores a time without trailing zeros.
func (e *Event) sameTime(v any) bool {
	if v == nil {
		return e.Time.IsZero()
	}
	text, ok := v.(string)
	if !ok {
		b, isBytes := v.([]byte)
		text, ok = string(b), isBytes
	}
	stored, valid := parseTime(text)
	return ok && valid && stored.Equal(e.Time)
}
