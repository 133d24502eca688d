package outbox

import (
	"fmt"
	"strings"
	"time"
)

// eventColumnsSQL selects the columns that eventColumns receives, in the order
// of its dest. The events table must have the alias e.
const eventColumnsSQL = `e.tenant_id, e.stream, e.specversion, e.event_id, e.source, e.event_type,
	e.subject, e.occurred_at, e.datacontenttype, e.dataschema, e.partitionkey,
	e.extensions, e.data_kind, e.data, e.enqueued_at`

// eventColumns receives one row of dovecote_events exactly as the driver hands
// it over, so that no stored form makes Scan fail: what a column holds is
// judged by decode, which can name the row. Scanning into any costs no
// conversion and, for text, no copy. One eventColumns serves all rows of a
// result: decode takes what it needs out of it.
type eventColumns struct {
	tenant, stream, specVersion, id, source, typ    any
	subject, time, contentType, dataSchema, partKey any
	extensions, dataKind                            any
	data                                            dataColumn
	enqueuedAt                                      any
}

// dest are the destinations for Rows.Scan, in the order of eventColumnsSQL. Call
// it once for each result, not for each row.
func (c *eventColumns) dest() []any {
	return []any{
		&c.tenant, &c.stream, &c.specVersion, &c.id, &c.source, &c.typ,
		&c.subject, &c.time, &c.contentType, &c.dataSchema, &c.partKey,
		&c.extensions, &c.dataKind, &c.data, &c.enqueuedAt,
	}
}

// dataColumn keeps the driver's own bytes: database/sql copies a []byte that is
// scanned into any, and event data can be large. This is sound for a driver that
// hands out fresh memory for each value, as modernc.org/sqlite does (the store
// uses no other, and a test pins it). With any other driver the bytes are only
// good until the next row.
type dataColumn struct{ v any }

// Scan keeps src as it is.
func (d *dataColumn) Scan(src any) error {
	d.v = src
	return nil
}

// decode turns the stored columns of a row into an event and the time it was
// enqueued at. Everything that publishing relies on is checked; the size limit is
// not. The error is a *SerializationError for the first bad column, and the
// event then holds the columns that are good. Strings and data share memory with
// what the driver returned, never with c.
func (c *eventColumns) decode(row int64) (Event, time.Time, error) {
	d := decoder{row: row}
	e := Event{
		Tenant: d.text("tenant_id", c.tenant, checkTenant),
		Stream: d.text("stream", c.stream, checkStream),
	}
	d.text("specversion", c.specVersion, checkSpecVersion)
	e.ID = d.text("event_id", c.id, checkID)
	e.Source = d.text("source", c.source, checkSource)
	d.reject("event_id", checkIdentity(e.Source, e.ID))
	e.Type = d.text("event_type", c.typ, checkType)
	e.Subject = d.optional("subject", c.subject, checkSubject)
	if c.time != nil {
		e.Time = d.time("occurred_at", c.time)
	}
	e.ContentType = d.optional("datacontenttype", c.contentType, checkMediaType)
	e.DataSchema = d.optional("dataschema", c.dataSchema, checkDataSchema)
	e.PartitionKey = d.optional("partitionkey", c.partKey, checkPartitionKey)
	e.Extensions = d.extensions(c.extensions)
	e.Data = d.data(c, e.ContentType)
	enqueued := d.time("enqueued_at", c.enqueuedAt)
	if d.err != nil {
		return e, enqueued, d.err
	}
	return e, enqueued, nil
}

// decoder collects the first error of a row.
type decoder struct {
	row int64
	err *SerializationError
}

func (d *decoder) fail(column, detail string) {
	if d.err == nil {
		d.err = &SerializationError{Row: d.row, Field: column, Detail: detail}
	}
}

// reject fails for a broken rule, and reports whether there is one.
func (d *decoder) reject(column string, p *InvalidEventError) bool {
	if p == nil {
		return false
	}
	d.fail(column, p.problem())
	return true
}

// text takes a required TEXT that passes check, else "".
func (d *decoder) text(column string, v any, check func(string) *InvalidEventError) string {
	s, ok := v.(string)
	if !ok {
		d.fail(column, "is "+storageClass(v)+", not TEXT")
		return ""
	}
	if d.reject(column, check(s)) {
		return ""
	}
	return s
}

// optional takes a TEXT that passes check, or NULL.
func (d *decoder) optional(column string, v any, check func(string) *InvalidEventError) string {
	if v == nil {
		return ""
	}
	return d.text(column, v, check)
}

func (d *decoder) time(column string, v any) time.Time {
	s, ok := v.(string)
	if !ok {
		d.fail(column, "is "+storageClass(v)+", not TEXT")
		return time.Time{}
	}
	t, ok := parseTime(s)
	if !ok {
		d.fail(column, fmt.Sprintf("is %q, not YYYY-MM-DDTHH:MM:SS.ffffffZ from 1970 to 9999", excerpt(s)))
		return time.Time{}
	}
	return t
}

func (d *decoder) extensions(v any) map[string]Value {
	s, ok := v.(string)
	if !ok {
		d.fail("extensions", "is "+storageClass(v)+", not TEXT")
		return nil
	}
	m, p := decodeExtensions(s)
	if p != nil {
		detail := p.problem()
		if name, ok := strings.CutPrefix(p.Field, "extensions."); ok {
			detail = name + ": " + detail
		}
		d.fail("extensions", detail)
	}
	return m
}

// data takes the payload, as BLOB or TEXT, with its kind.
func (d *decoder) data(c *eventColumns, contentType string) Data {
	if c.dataKind == nil && c.data.v == nil {
		return Data{}
	}
	var data Data
	switch kind := c.dataKind.(type) {
	case string:
		switch kind {
		case kindJSON:
			data.kind = DataJSON
		case kindBinary:
			data.kind = DataBinary
		default:
			d.fail("data_kind", fmt.Sprintf("is %q, not json or binary", excerpt(kind)))
			return Data{}
		}
	case nil:
		d.fail("data_kind", "is NULL although data is not")
		return Data{}
	default:
		d.fail("data_kind", "is "+storageClass(kind)+", not TEXT")
		return Data{}
	}
	switch v := c.data.v.(type) {
	case []byte:
		data.bytes = v
	case string:
		data.bytes = []byte(v)
	case nil:
		d.fail("data", "is NULL although data_kind is not")
		return Data{}
	default:
		d.fail("data", "is "+storageClass(v)+", not BLOB or TEXT")
		return Data{}
	}
	if p := checkData(data, contentType); p != nil {
		d.fail(p.Field, p.problem())
		return Data{}
	}
	return data
}

func checkSpecVersion(s string) *InvalidEventError {
	if s != specVersion {
		return malformed("is %q, not %s", excerpt(s), specVersion)
	}
	return nil
}

// storageClass names what SQLite stored instead of TEXT, for an error.
func storageClass(v any) string {
	switch v.(type) {
	case nil:
		return "NULL"
	case []byte:
		return "BLOB"
	case int64:
		return "INTEGER"
	case float64:
		return "REAL"
	}
	return fmt.Sprintf("a %T", v)
}
