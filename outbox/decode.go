package outbox

import (
	"fmt"
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
// event then holds the columns that could be read. The event shares memory with
// what the driver returned, never with c.
func (c *eventColumns) decode(row int64) (Event, time.Time, error) {
	d := decoder{row: row}
	var e Event
	if v := d.required("specversion", c.specVersion); d.err == nil && v != specVersion {
		d.fail("specversion", fmt.Sprintf("is %q, not %s", v, specVersion))
	}
	e.Tenant = d.required("tenant_id", c.tenant)
	e.Stream = d.required("stream", c.stream)
	e.ID = d.required("event_id", c.id)
	e.Source = d.required("source", c.source)
	e.Type = d.required("event_type", c.typ)
	return e, time.Time{}, d.result()
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

func (d *decoder) result() error {
	if d.err != nil {
		return d.err
	}
	return nil
}

func (d *decoder) required(column string, v any) string {
	s, ok := v.(string)
	if !ok {
		d.fail(column, "is not TEXT")
	}
	return s
}
