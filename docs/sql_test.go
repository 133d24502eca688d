package docs_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/outbox/outboxtest"
)

// order is the event that sql.md and, but for the time, producer.py write.
var order = outbox.Event{
	Tenant: "acme", Stream: "orders", ID: "o-17", Source: "/shop", Type: "com.example.order.placed",
	Time: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC), ContentType: "application/json", PartitionKey: "customer-9",
	Extensions: map[string]outbox.Value{"channel": outbox.String("web"), "priority": outbox.Int(3)},
	Data:       outbox.JSON([]byte(`{"order":"o-17"}`)),
}

// shop makes an outbox file with a table of orders. The file is checked when the
// test ends.
func shop(t *testing.T) (*outbox.Store, *sql.DB) {
	t.Helper()
	s := outboxtest.NewStore(t)
	db := outboxtest.Producer(t, s.Path())
	db.SetMaxOpenConns(1)
	exec1(t, db, "CREATE TABLE orders (id TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
	return s, db
}

func exec1(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// claimOne claims the only event there is.
func claimOne(t *testing.T, s *outbox.Store) outbox.Claimed {
	t.Helper()
	claimed, err := s.AllTenants().Claim(t.Context(), "test", time.Minute, 10)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%d events, %v", len(claimed), err)
	}
	return claimed[0]
}

func TestStatementsOfThePageEnqueue(t *testing.T) {
	s, db := shop(t)
	statements := blocks(read(t, "sql.md"), "sql")
	if len(statements) != 3 {
		t.Fatalf("%d SQL blocks in sql.md", len(statements))
	}
	exec1(t, db, statements[0])
	exec1(t, db, statements[1])
	// The library takes the event for its own: content and forms are the same.
	r, err := enqueue(t, db, order)
	if err != nil || r.Outcome != outbox.AlreadyEnqueued {
		t.Errorf("%+v, %v", r, err)
	}
	for same, stream := range map[int64]string{1: "orders", 0: "others"} {
		var row, got int64
		err := db.QueryRow(statements[2], sql.Named("stream", stream), sql.Named("event_type", order.Type), sql.Named("subject", nil),
			sql.Named("occurred_at", "2026-01-02T03:04:05.678901Z"), sql.Named("datacontenttype", order.ContentType), sql.Named("dataschema", nil),
			sql.Named("partitionkey", order.PartitionKey), sql.Named("extensions", `{"channel":{"type":"string","value":"web"},"priority":{"type":"integer","value":3}}`),
			sql.Named("data_kind", "json"), sql.Named("data", order.Data.Bytes()),
			sql.Named("tenant_id", order.Tenant), sql.Named("source", order.Source), sql.Named("event_id", order.ID)).Scan(&row, &got)
		if err != nil || row != r.Row || got != same {
			t.Errorf("stream %s: row %d, same %d; %v", stream, row, got, err)
		}
	}
	if c := claimOne(t, s); !reflect.DeepEqual(c.Event, order) {
		t.Errorf("claimed %+v", c.Event)
	}
}

func enqueue(t *testing.T, db *sql.DB, e outbox.Event) (outbox.Receipt, error) {
	t.Helper()
	tx, err := outbox.Begin(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	r, err := outbox.Enqueue(t.Context(), tx, e)
	return r, errors.Join(err, tx.Commit())
}

// everyType has an extension of each type, and text that an encoder might escape.
var everyType = outbox.Event{
	Tenant: "größe <&> 😀", Stream: "s.1_-", ID: `q"\`, Source: "/shop?x=%20", Type: "t", Subject: "</é>\u2028", Time: time.Date(1970, 1, 1, 0, 0, 0, 1000, time.UTC),
	ContentType: "application/octet-stream", DataSchema: "https://example.com/", PartitionKey: "k", Data: outbox.Binary(nil),
	Extensions: map[string]outbox.Value{
		"zero": outbox.String(""), "a": outbox.Bool(true), "b": outbox.Int(-2147483648), "c": outbox.String("\"\\/<>&é\u2028😀"),
		"d": outbox.Bytes([]byte{0, 255, 62, 63}), "e": outbox.URI("https://example.com/"), "f": outbox.URIReference("../x"),
		"g": outbox.Timestamp("2026-01-01T00:00:00.12+01:00"),
	},
}

// script runs the example on a file, and then two events of its own.
const script = `
import json, sys
from datetime import datetime, timezone
sys.dont_write_bytecode = True
sys.path.insert(0, "examples")
import producer
db = producer.open_database(sys.argv[1])
producer.place_order(db, "o-18", 4200, datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc))
event = dict(tenant_id="größe <&> 😀", stream="s.1_-", event_id='q"\\', source="/shop?x=%20", event_type="t", subject="</é>\u2028",
    occurred_at=producer.timestamp(datetime(1970, 1, 1, 0, 0, 0, 1, timezone.utc)), datacontenttype="application/octet-stream",
    dataschema="https://example.com/", partitionkey="k", data_kind="binary", data=b"",
    extensions=producer.extensions({"zero": ("string", ""), "a": ("boolean", True), "b": ("integer", -2147483648),
        "c": ("string", '"\\/<>&é\u2028😀'), "d": ("binary", bytes([0, 255, 62, 63])), "e": ("uri", "https://example.com/"),
        "f": ("uri-reference", "../x"), "g": ("timestamp", "2026-01-01T00:00:00.12+01:00")}))
outcomes = []
for change in ({}, {}, {"data": None, "data_kind": None}):
    db.execute("BEGIN IMMEDIATE")
    try:
        outcomes.append(producer.enqueue(db, **(event | change)))
        db.execute("COMMIT")
    except producer.IdempotencyConflict:
        outcomes.append("conflict")
        db.execute("ROLLBACK")
try:
    producer.place_order(db, "o-18", 1, datetime.now(timezone.utc))
except Exception as e:
    outcomes.append([type(e).__name__, db.in_transaction])
json.dump(outcomes, sys.stdout)
`

func TestPythonProducerWritesWhatTheLibraryWrites(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed here")
	}
	s, db := shop(t)
	cmd := exec.Command(python, "-c", script, s.Path())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out), `[[2, true], [2, false], "conflict", ["IntegrityError", false]]`; got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
	placed := order
	placed.ID, placed.PartitionKey, placed.Data = "o-18", "", outbox.JSON([]byte(`{"order": "o-18", "cents": 4200}`))
	for _, e := range []outbox.Event{placed, everyType} {
		if r, err := enqueue(t, db, e); err != nil || r.Outcome != outbox.AlreadyEnqueued {
			t.Errorf("%s: %+v, %v", e.ID, r, err)
		}
	}
	claimed, err := s.AllTenants().Claim(t.Context(), "test", time.Minute, 10)
	if err != nil || len(claimed) != 2 || !reflect.DeepEqual(claimed[0].Event, placed) || !sameEvent(claimed[1].Event, everyType) {
		t.Errorf("%+v, %v", claimed, err)
	}
}

// sameEvent compares events whose empty data may be nil or not.
func sameEvent(a, b outbox.Event) bool {
	same := a.Data.Kind() == b.Data.Kind() && bytes.Equal(a.Data.Bytes(), b.Data.Bytes())
	a.Data, b.Data = outbox.Data{}, outbox.Data{}
	return same && reflect.DeepEqual(a, b)
}

func TestPageQuotesThePythonProducer(t *testing.T) {
	program := read(t, "examples/producer.py")
	for _, block := range blocks(read(t, "sql.md"), "python") {
		if !strings.Contains(program, block) {
			t.Errorf("not in producer.py:\n%s", block)
		}
	}
}

// mistakes are the rows of the table in sql.md that follows a comment: what the
// mistake is, and the second column.
func mistakes(t *testing.T, table string) map[string]string {
	t.Helper()
	_, text, found := strings.Cut(read(t, "sql.md"), "<!-- "+table+" -->\n")
	if !found {
		t.Fatalf("sql.md has no table %s", table)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	rows := map[string]string{}
	for _, line := range strings.Split(text, "\n")[2:] {
		cells := strings.Split(line, " | ")
		rows[strings.TrimPrefix(cells[0], "| ")] = strings.Trim(cells[1], "`| ")
	}
	return rows
}

// goodEvent is an event in SQL; a mistake changes columns of it.
var goodEvent = map[string]string{
	"tenant_id": "'acme'", "stream": "'orders'", "specversion": "'1.0'", "event_id": "'bad'", "source": "'/shop'", "event_type": "'t'",
	"datacontenttype": "'application/json'", "data_kind": "'json'", "data": "CAST('{}' AS BLOB)",
}

// insert is the statement that writes base with changes; an empty value leaves
// the column out.
func insert(table string, base, changes map[string]string) string {
	var columns, values []string
	all := map[string]string{}
	for _, m := range []map[string]string{base, changes} {
		for column, value := range m {
			all[column] = value
		}
	}
	for column, value := range all {
		if value != "" {
			columns, values = append(columns, column), append(values, value)
		}
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")"
}

type change = map[string]string

func badEvent(c change) string { return insert("dovecote_events", goodEvent, c) }

// badDelivery is for the event in row 1, which has a delivery, or row 2, which has none.
func badDelivery(c change) string {
	return insert("dovecote_deliveries", change{"event_row_id": "2", "tenant_id": "'acme'", "state": "'pending'"}, c)
}

func TestTheFileRefusesWhatThePageSays(t *testing.T) {
	statements := map[string]string{
		"a required column left out":                     badEvent(change{"event_type": ""}),
		"an empty tenant":                                badEvent(change{"tenant_id": "''"}),
		"a text longer than its column":                  badEvent(change{"subject": "printf('%2049c', 'x')"}),
		"source and id together longer than 2,048 bytes": badEvent(change{"source": "printf('%1500c', 'x')", "event_id": "printf('%600c', 'x')"}),
		"specversion other than 1.0":                     badEvent(change{"specversion": "'1.1'"}),
		"data without data_kind":                         badEvent(change{"data_kind": ""}),
		"data_kind without data":                         badEvent(change{"data": ""}),
		"an unknown data_kind":                           badEvent(change{"data_kind": "'text'"}),
		"data without a content type":                    badEvent(change{"datacontenttype": ""}),
		"an identity that is taken":                      badEvent(change{"event_id": "'o-17'"}),
		"a delivery without its event":                   badDelivery(change{"event_row_id": "99"}),
		"a delivery for another tenant's event":          badDelivery(change{"tenant_id": "'other'"}),
		"a second delivery for an event":                 badDelivery(change{"event_row_id": "1"}),
		"an unknown state":                               badDelivery(change{"state": "'new'"}),
		"a delivery that is claimed without a token":     badDelivery(change{"state": "'claimed'"}),
		"negative attempts":                              badDelivery(change{"attempts": "-1"}),
	}
	_, db := shop(t)
	for _, id := range []string{"o-17", "o-18"} {
		e := order
		e.ID = id
		if _, err := enqueue(t, db, e); err != nil {
			t.Fatal(err)
		}
	}
	for name, by := range mistakes(t, "refused") {
		query, ok := statements[name]
		if !ok {
			t.Errorf("no statement tries %q", name)
			continue
		}
		delete(statements, name)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if name != "a second delivery for an event" {
			_, err = tx.Exec("DELETE FROM dovecote_deliveries WHERE event_row_id = 2")
		}
		if err == nil {
			_, err = tx.Exec(query)
		}
		if err == nil {
			err = tx.Commit()
		}
		tx.Rollback()
		constraint := map[string]string{"PRIMARY KEY": "UNIQUE"}[by]
		if constraint == "" {
			constraint = by
		}
		if err == nil || !strings.Contains(err.Error(), constraint+" constraint failed") {
			t.Errorf("%s: %v, want %s", name, err, by)
		}
	}
	for name := range statements {
		t.Errorf("sql.md does not have %q", name)
	}
}

func TestTheRelayFindsWhatThePageSays(t *testing.T) {
	statements := map[string]string{
		"a blank or another order in the extensions": badEvent(change{"extensions": `'{"b":{"type":"integer","value":1}, "c":{"type":"integer","value":1}}'`}),
		"an extension without its type":              badEvent(change{"extensions": `'{"b":1}'`}),
		"a needless escape in the extensions":        badEvent(change{"extensions": `'{"b":{"type":"string","value":"\u00e9"}}'`}),
		"extensions that are no JSON":                badEvent(change{"extensions": `'b=1'`}),
		"a time in another form":                     badEvent(change{"occurred_at": "datetime('now')"}),
		"a time as a number":                         badEvent(change{"occurred_at": "1767225600"}),
		"data of kind json that is no JSON":          badEvent(change{"data": "CAST('{a:1}' AS BLOB)"}),
		"data of kind json with another media type":  badEvent(change{"datacontenttype": "'text/plain'"}),
		"an empty text instead of NULL":              badEvent(change{"subject": "''"}),
		"a stream with a blank":                      badEvent(change{"stream": "'new orders'"}),
		"a source that is no URI-reference":          badEvent(change{"source": "'my shop'"}),
		"a line break in a text":                     badEvent(change{"subject": "'a' || char(10) || 'b'"}),
		"a text bound as a BLOB":                     badEvent(change{"event_id": "CAST('bad' AS BLOB)"}),
	}
	for name, column := range mistakes(t, "taken") {
		query, ok := statements[name]
		if !ok {
			t.Errorf("no statement tries %q", name)
			continue
		}
		delete(statements, name)
		s := outboxtest.NewSpoiled(t)
		db := outboxtest.Producer(t, s.Path())
		exec1(t, db, query)
		exec1(t, db, `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state) VALUES (1, 'acme', 'pending')`)
		_, err := s.AllTenants().Claim(t.Context(), "test", time.Minute, 10)
		var bad *outbox.BadRowsError
		var named *outbox.SerializationError
		if !errors.As(err, &bad) || bad.Rows[0].Code != "undecodable" || !errors.As(err, &named) || named.Field != column {
			t.Errorf("%s: %v, want column %s", name, err, column)
		}
		if findings, err := s.AllTenants().Check(t.Context(), 0); err != nil || len(findings) == 0 || findings[0].Rule != outbox.CheckUndecodable {
			t.Errorf("%s: %v, %v", name, findings, err)
		}
	}
	for name := range statements {
		t.Errorf("sql.md does not have %q", name)
	}
}

func TestNobodyIsStoppedByWhatThePageSays(t *testing.T) {
	const delivery = `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, available_at) VALUES (1, 'acme', 'pending', `
	statements := map[string][]string{
		"data as TEXT":                {badEvent(change{"data": "'{}'"}), delivery + `'2026-01-01T00:00:00.000000Z')`},
		"an event without a delivery": {badEvent(nil)},
		"a due time in the future":    {badEvent(nil), delivery + `'9999-01-01T00:00:00.000000Z')`},
		"a due time in another form":  {badEvent(nil), delivery + `'tomorrow')`},
	}
	if found := mistakes(t, "tolerated"); len(found) != len(statements) {
		t.Errorf("sql.md has %d of these mistakes, not %d", len(found), len(statements))
	}
	for name := range mistakes(t, "tolerated") {
		s := outboxtest.NewSpoiled(t)
		db := outboxtest.Producer(t, s.Path())
		for _, query := range statements[name] {
			exec1(t, db, query)
		}
		if len(statements[name]) == 0 {
			t.Errorf("no statement tries %q", name)
		}
		if _, err := enqueue(t, db, order); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.AllTenants().Claim(context.Background(), "test", time.Minute, 10)
		if err != nil || claimed[len(claimed)-1].Event.ID != order.ID {
			t.Errorf("%s: %+v, %v", name, claimed, err)
		}
		if name == "data as TEXT" && string(claimed[0].Event.Data.Bytes()) != "{}" {
			t.Errorf("%s: %q", name, claimed[0].Event.Data.Bytes())
		}
		if findings, err := s.AllTenants().Check(t.Context(), 0); err != nil || (len(findings) == 0) != (name == "a due time in the future") {
			t.Errorf("%s: %v, %v", name, findings, err)
		}
	}
}
