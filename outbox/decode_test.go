package outbox

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const storedEventsSQL = `SELECT ` + eventColumnsSQL + ` FROM dovecote_events e ORDER BY e.row_id`

// putEventSQL has the values of appendColumns as its parameters.
var putEventSQL = `INSERT INTO dovecote_events (` + eventInsertColumns + `) VALUES (?` +
	strings.Repeat(", ?", eventInsertCount-1) + `)`

// eventsDB is a new outbox file whose CHECKs another writer has switched off.
func eventsDB(tb testing.TB) *sql.DB {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "events.db")
	create(tb, path)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=ignore_check_constraints(1)")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func putEvent(tb testing.TB, db *sql.DB, e *Event) {
	tb.Helper()
	if _, err := db.Exec(putEventSQL, e.appendColumns(nil)...); err != nil {
		tb.Fatal(err)
	}
}

// storedColumns are e's columns as the driver would hand them over.
func storedColumns(e *Event) *eventColumns {
	args := e.appendColumns(nil)
	c := new(eventColumns)
	for i, d := range c.dest()[:eventInsertCount] {
		switch d := d.(type) {
		case *any:
			*d = args[i]
		case *dataColumn:
			d.v = args[i]
		}
	}
	c.enqueuedAt = "2026-01-01T00:00:00.123000Z"
	return c
}

func TestEventsSurviveTheDatabase(t *testing.T) {
	db := eventsDB(t)
	events := projectedEvents(t)
	for i := range events {
		putEvent(t, db, &events[i].event)
	}
	rows, err := db.Query(storedEventsSQL)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var c eventColumns
	dest := c.dest()
	var got []Event
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		e, enqueued, err := c.decode(int64(len(got) + 1))
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(enqueued); age < 0 || age > time.Minute {
			t.Errorf("enqueued at %v", enqueued)
		}
		if !events[len(got)].event.sameContent(&c) {
			t.Error("the stored row does not have the content of its event")
		}
		got = append(got, e)
	}
	if err := rows.Err(); err != nil || len(got) != len(events) {
		t.Fatalf("%d rows, %v", len(got), err)
	}
	// The events are compared after the last row, so that memory which the driver used
	// again for a later row would show.
	for i, tc := range events {
		want := tc.event
		if want.Data.kind != DataAbsent && len(want.Data.bytes) == 0 {
			got[i].Data.bytes, want.Data.bytes = nil, nil
		}
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got[i], want)
		}
		if got[i].MessageID() != tc.messageID {
			t.Errorf("%s: message id changed", tc.name)
		}
	}
}

func TestDriverHandsOutFreshMemory(t *testing.T) {
	db := eventsDB(t)
	for i := range 50 {
		e := Event{
			Tenant: "t", Stream: "s", ID: fmt.Sprint(i), Source: "/", Type: "t",
			ContentType: "a/b", Data: Binary(bytes.Repeat([]byte{byte(i)}, 3000)),
		}
		putEvent(t, db, &e)
	}
	rows, err := db.Query(storedEventsSQL)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var c eventColumns
	var all []Event
	for rows.Next() {
		if err := rows.Scan(c.dest()...); err != nil {
			t.Fatal(err)
		}
		e, _, err := c.decode(1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	for i, e := range all {
		if e.ID != fmt.Sprint(i) || !bytes.Equal(e.Data.bytes, bytes.Repeat([]byte{byte(i)}, 3000)) {
			t.Fatalf("row %d was overwritten by a later one", i)
		}
	}
}

func TestStoredFormsThatDecode(t *testing.T) {
	full := fullEvent(t)
	tests := []struct {
		name   string
		column string
		value  string // SQL
		want   func(*Event)
	}{
		{"data as TEXT", "data", `CAST(data AS TEXT)`, func(*Event) {}},
		{"empty TEXT as binary data", "data_kind = 'binary', data", `''`, func(e *Event) { e.Data = Binary([]byte{}) }},
		{"an empty BLOB", "data_kind = 'binary', data", `x''`, func(e *Event) { e.Data = Binary(nil) }},
		{"no data", "data_kind = NULL, data", `NULL`, func(e *Event) { e.Data = Data{} }},
		{"a time without a fraction", "occurred_at", `'2026-01-01T00:00:00Z'`, func(e *Event) { e.Time = mustTime(t, "2026-01-01T00:00:00Z") }},
		{"a time with a short fraction", "occurred_at", `'2026-01-01T00:00:00.12Z'`, func(e *Event) { e.Time = mustTime(t, "2026-01-01T00:00:00.12Z") }},
		{"an id that looks like a number", "event_id", `17`, func(e *Event) { e.ID = "17" }},
		{"a subject that is a number", "subject", `1.5`, func(e *Event) { e.Subject = "1.5" }},
		{"an event larger than any limit", "data", `CAST('"' || printf('%.200000c', 'x') || '"' AS BLOB)`, func(e *Event) {
			e.Data = JSON([]byte(`"` + strings.Repeat("x", 200_000) + `"`))
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, _, err := spoiled(t, &full, tc.column, tc.value)
			if err != nil {
				t.Fatal(err)
			}
			want := full
			tc.want(&want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

// spoiled stores e, sets a column to an SQL expression, and decodes the row as row 1.
func spoiled(t *testing.T, e *Event, column, value string) (Event, time.Time, error) {
	t.Helper()
	db := eventsDB(t)
	putEvent(t, db, e)
	if _, err := db.Exec(`UPDATE dovecote_events SET ` + column + ` = ` + value); err != nil {
		t.Fatal(err)
	}
	var c eventColumns
	if err := db.QueryRow(storedEventsSQL).Scan(c.dest()...); err != nil {
		t.Fatal(err)
	}
	return c.decode(1)
}

func TestSpoiledRowsAreNamed(t *testing.T) {
	full := fullEvent(t)
	tests := []struct {
		name   string
		column string
		value  string // SQL
		field  string
		detail string
	}{
		{"tenant as BLOB", "tenant_id", `x'616263'`, "tenant_id", "is BLOB, not TEXT"},
		{"tenant empty", "tenant_id", `''`, "tenant_id", "empty"},
		{"tenant with a control character", "tenant_id", `'a' || char(10)`, "tenant_id", "U+000A"},
		{"tenant too long", "tenant_id", `printf('%.256c', 'x')`, "tenant_id", "256 bytes, limit 255"},
		{"stream with a wildcard", "stream", `'a.>'`, "stream", "format"},
		{"specversion of the past", "specversion", `'0.3'`, "specversion", `"0.3"`},
		{"id as BLOB", "event_id", `x'ff'`, "event_id", "is BLOB"},
		{"id that is not UTF-8", "event_id", `CAST(x'61ff' AS TEXT)`, "event_id", "invalid UTF-8"},
		{"id and source too long together", "source = printf('/%.1500c', 'x'), event_id", `printf('%.1000c', 'x')`, "event_id", "limit 2048"},
		{"source with a blank", "source", `'/a b'`, "source", "URI-reference"},
		{"type empty", "event_type", `''`, "event_type", "empty"},
		{"subject empty instead of NULL", "subject", `''`, "subject", "empty"},
		{"subject as BLOB", "subject", `x'00'`, "subject", "is BLOB"},
		{"time in SQLite's own form", "occurred_at", `'2026-01-01 00:00:00'`, "occurred_at", "2026-01-01 00:00:00"},
		{"time as a number", "occurred_at", `1767225600`, "occurred_at", "1767225600"},
		{"time with an offset", "occurred_at", `'2026-01-01T00:00:00+01:00'`, "occurred_at", "+01:00"},
		{"time before the epoch", "occurred_at", `'1969-12-31T23:59:59.000000Z'`, "occurred_at", "1970"},
		{"time empty", "occurred_at", `''`, "occurred_at", `""`},
		{"time as BLOB", "occurred_at", `x'00'`, "occurred_at", "is BLOB"},
		{"content type that is none", "datacontenttype", `'json'`, "datacontenttype", "media type"},
		{"content type with a newline", "datacontenttype", `'application/json' || char(13, 10) || 'Nats-Rollup: all'`, "datacontenttype", "U+000D"},
		{"content type missing", "datacontenttype", `NULL`, "datacontenttype", "missing"},
		{"JSON data under another media type", "datacontenttype", `'text/plain'`, "datacontenttype", "json"},
		{"dataschema relative", "dataschema", `'/schema'`, "dataschema", "scheme"},
		{"partition key with NUL", "partitionkey", `'a' || char(0)`, "partitionkey", "U+0000"},
		{"extensions that are no JSON", "extensions", `'{'`, "extensions", "not JSON"},
		{"extensions empty", "extensions", `''`, "extensions", "not JSON"},
		{"extensions as BLOB", "extensions", `CAST('{}' AS BLOB)`, "extensions", "is BLOB"},
		{"extension with a newline", "extensions", `'{"x":{"type":"string","value":"x' || char(13, 10) || 'Nats-Rollup: all"}}'`, "extensions", "x: format: control character U+000D"},
		{"extension of an unknown type", "extensions", `'{"x":{"type":"float","value":1}}'`, "extensions", `x: format: unknown type "float"`},
		{"data kind unknown", "data_kind", `'xml'`, "data_kind", `"xml"`},
		{"data kind as BLOB", "data_kind", `x'6a736f6e'`, "data_kind", "is BLOB"},
		{"data kind NULL with data", "data_kind", `NULL`, "data_kind", "data is not"},
		{"data NULL with a data kind", "data", `NULL`, "data", "data_kind is not"},
		{"data as a number", "data", `42`, "data", "is INTEGER"},
		{"data as a float", "data", `4.2`, "data", "is REAL"},
		{"JSON data that is no JSON", "data", `'{"a":}'`, "data", "at byte 5"},
		{"JSON data that is empty", "data", `x''`, "data", "empty"},
		{"JSON data with a lone surrogate", "data", `'"\ud800"'`, "data", "surrogate"},
		{"JSON data nested too deep", "data", `CAST(replace(printf('%.100000c', 'x'), 'x', '[') AS BLOB)`, "data", "too deep"},
		{"enqueued at no time", "enqueued_at", `'now'`, "enqueued_at", `"now"`},
		{"enqueued at as BLOB", "enqueued_at", `x'00'`, "enqueued_at", "is BLOB"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := spoiled(t, &full, tc.column, tc.value)
			var bad *SerializationError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v", err)
			}
			if bad.Row != 1 || bad.Field != tc.field || !strings.Contains(bad.Detail, tc.detail) {
				t.Errorf("got %v", bad)
			}
		})
	}
}

func TestColumnsThatNoSchemaAllowsAreNamed(t *testing.T) {
	full := fullEvent(t)
	names := []string{
		"tenant_id", "stream", "specversion", "event_id", "source", "event_type", "", "", "", "", "",
		"extensions", "data_kind", "data", "enqueued_at",
	}
	for i, column := range names {
		for _, v := range []any{nil, int64(-1), 1.5, true, time.Now(), []byte(nil), []string{"x"}} {
			c := storedColumns(&full)
			name := column
			switch d := c.dest()[i].(type) {
			case *any:
				*d = v
			case *dataColumn:
				d.v = v
			}
			_, _, err := c.decode(7)
			if v == nil && name == "" {
				if err != nil && !strings.Contains(err.Error(), "datacontenttype") {
					t.Errorf("optional column %d: %v", i, err)
				}
				continue
			}
			var bad *SerializationError
			if !errors.As(err, &bad) || bad.Row != 7 || name != "" && bad.Field != name {
				t.Errorf("column %d as %T: got %v", i, v, err)
			}
		}
	}
}

func TestBadRowsKeepTheirGoodColumns(t *testing.T) {
	full := fullEvent(t)
	c := storedColumns(&full)
	c.source = "not a source"
	e, enqueued, err := c.decode(1)
	if err == nil {
		t.Fatal("no error")
	}
	want := full
	want.Source = ""
	if !reflect.DeepEqual(e, want) || enqueued.IsZero() {
		t.Errorf("got %+v", e)
	}
}

// FuzzDecodeRow: no row panics, and one that decodes is valid, published and stored again
// the same.
func FuzzDecodeRow(f *testing.F) {
	add := func(e Event, kind string) {
		f.Add(e.Tenant, e.Stream, e.ID, e.Source, e.Type, e.Subject, formatTime(e.Time), e.ContentType, e.DataSchema,
			e.PartitionKey, e.storedExtensions(), kind, e.Data.Bytes(), uint16(0))
	}
	for _, tc := range projectedEvents(f) {
		add(tc.event, "json")
		add(tc.event, "binary")
	}
	f.Add("t", "s", "i", "/", "t", "", "1970-01-01T00:00:00Z", "", "", "", "{}", "", []byte(nil), uint16(1<<10|1<<9|1<<8))
	f.Add("t\n", ".", "\xff", " ", "", "\x00", "x", "x", "x", "\u0085", "{", "xml", []byte{0xff}, uint16(0xffff))
	f.Fuzz(func(t *testing.T, tenant, stream, id, source, typ, subject, at, contentType, schema, key, ext, kind string, data []byte, shape uint16) {
		c := eventColumns{
			tenant: tenant, stream: stream, specVersion: "1.0", id: id, source: source, typ: typ, subject: subject, time: at,
			contentType: contentType, dataSchema: schema, partKey: key, extensions: ext, dataKind: kind,
			data: dataColumn{data}, enqueuedAt: "2026-01-01T00:00:00.000000Z",
		}
		// Each bit gives a column another form, NULL or BLOB by turns.
		for i, d := range c.dest()[:14] {
			if d, ok := d.(*any); ok && shape>>i&1 == 1 {
				*d = nil
				if shape>>15 == 1 && i%2 == 0 {
					*d = []byte("x")
				}
			}
		}
		e, _, err := c.decode(1)
		if err != nil {
			var bad *SerializationError
			if !errors.As(err, &bad) || bad.Row != 1 || bad.Field == "" || bad.Detail == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("decoded, but %v", err)
		}
		if !e.sameContent(&c) {
			t.Fatal("decodes to other content")
		}
		again, _, err := storedColumns(&e).decode(1)
		if err != nil || !again.sameContent(storedColumns(&e)) {
			t.Fatalf("stored again it fails: %v", err)
		}
		if _, err := e.AppendStructured(nil); err != nil {
			t.Fatal(err)
		}
		for _, a := range e.AppendAttributes(nil) {
			if strings.ContainsFunc(a.Value, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Fatalf("attribute %s: raw %q", a.Name, a.Value)
			}
		}
	})
}
