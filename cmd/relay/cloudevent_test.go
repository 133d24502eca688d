package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// core is what every event needs, for cases to add to.
const core = `"specversion":"1.0","id":"i","source":"/s","type":"t"`

func TestStructuredEvents(t *testing.T) {
	base := outbox.Event{Tenant: "acme", Stream: "orders", ID: "i", Source: "/s", Type: "t"}
	with := func(change func(*outbox.Event)) outbox.Event {
		e := base
		change(&e)
		return e
	}
	tests := []struct {
		name string
		json string
		want outbox.Event
	}{
		{"no data", `{` + core + `}`, base},
		{"data without media type is JSON", `{` + core + `,"data":{"a":1}}`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "application/json", outbox.JSON([]byte(`{"a":1}`))
		})},
		{"numbers, escapes and blanks stay as spelled", `{` + core + `,"data": {"n": 9007199254740993, "e":1e400, "s":"<\u00e9&>", "n":1} }`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "application/json", outbox.JSON([]byte(`{"n": 9007199254740993, "e":1e400, "s":"<\u00e9&>", "n":1}`))
		})},
		{"null data is the JSON value null", `{` + core + `,"data":null}`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "application/json", outbox.JSON([]byte(`null`))
		})},
		{"JSON media type with parameters", `{` + core + `,"datacontenttype":"application/problem+JSON; charset=utf-8","data":"text"}`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "application/problem+JSON; charset=utf-8", outbox.JSON([]byte(`"text"`))
		})},
		{"string under another media type is text", `{"data":"a\n\u00e9\ud83d\ude00",` + core + `,"datacontenttype":"text/plain"}`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "text/plain", outbox.Binary([]byte("a\né😀"))
		})},
		{"empty string under another media type is present and empty", `{` + core + `,"datacontenttype":"text/plain","data":""}`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "text/plain", outbox.Binary([]byte{})
		})},
		{"base64 is binary", `{` + core + `,"datacontenttype":"application/json","data_base64":"AP8="}`, with(func(e *outbox.Event) {
			e.ContentType, e.Data = "application/json", outbox.Binary([]byte{0, 0xff})
		})},
		{"null attributes are left out", `{` + core + `,"subject":null,"time":null,"datacontenttype":null,"data_base64":null,"ext":null}`, base},
		{"all attributes", `{` + core + `,"subject":"x y","time":"2026-01-01T01:00:00.123456+01:00","dataschema":"https://x.test/s","partitionkey":"k"}`, with(func(e *outbox.Event) {
			e.Subject, e.DataSchema, e.PartitionKey = "x y", "https://x.test/s", "k"
			e.Time = time.Date(2026, 1, 1, 0, 0, 0, 123456000, time.UTC)
		})},
		{"extensions by their JSON type", `{` + core + `,"s":"","b":true,"f":false,"n":-7}`, with(func(e *outbox.Event) {
			e.Extensions = map[string]outbox.Value{"s": outbox.String(""), "b": outbox.Bool(true), "f": outbox.Bool(false), "n": outbox.Int(-7)}
		})},
		{"escaped member names", `{` + core + `,"\u0073ubject":"x"}`, with(func(e *outbox.Event) { e.Subject = "x" })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStructured([]byte(tt.json), "acme", "orders")
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("not valid: %v", err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestBadStructuredEvents(t *testing.T) {
	tests := []struct{ name, json, field, detail string }{
		{"not JSON", `nonsense`, "", "is no JSON object"},
		{"array", `[1]`, "", "is no JSON object"},
		{"cut off", `{"id":"x"`, "", "it ends too early"},
		{"cut off in a value", `{"id":"x`, "id", "it ends too early"},
		{"two objects", `{` + core + `} {}`, "", "more after the JSON object"},
		{"invalid UTF-8", "{\"id\":\"\xff\"}", "", "is not UTF-8"},
		{"member twice", `{` + core + `,"id":"j"}`, "id", "twice"},
		{"data twice", `{` + core + `,"data":1,"data":2}`, "data", "twice"},
		{"no id", `{"specversion":"1.0","source":"/s","type":"t"}`, "id", "is missing"},
		{"null type", `{"specversion":"1.0","id":"i","source":"/s","type":null}`, "type", "is missing"},
		{"no specversion", `{"id":"i","source":"/s","type":"t"}`, "specversion", "is missing"},
		{"other specversion", `{"specversion":"0.3","id":"i","source":"/s","type":"t"}`, "specversion", `must be "1.0"`},
		{"number as id", `{"specversion":"1.0","id":7,"source":"/s","type":"t"}`, "id", "must be a string"},
		{"empty id", `{"specversion":"1.0","id":"","source":"/s","type":"t"}`, "id", "is empty"},
		{"empty subject", `{` + core + `,"subject":""}`, "subject", "is empty; leave it out"},
		{"empty media type", `{` + core + `,"datacontenttype":""}`, "datacontenttype", "is empty"},
		{"time without zone", `{` + core + `,"time":"2026-01-01T00:00:00"}`, "time", "is no RFC 3339 time"},
		{"time as a number", `{` + core + `,"time":1}`, "time", "must be a string"},
		{"time beyond nanoseconds", `{` + core + `,"time":"2026-01-01T00:00:00.0000000001Z"}`, "time", "finer than a microsecond"},
		{"data beside base64", `{` + core + `,"data":1,"data_base64":""}`, "data", "together"},
		{"object under text", `{` + core + `,"datacontenttype":"text/plain","data":{}}`, "data", "must be a string under the media type"},
		{"null under text", `{` + core + `,"datacontenttype":"text/plain","data":null}`, "data", "must be a string under"},
		{"base64 of another alphabet", `{` + core + `,"data_base64":"_w=="}`, "data_base64", "no padded base64"},
		{"base64 without padding", `{` + core + `,"data_base64":"/w"}`, "data_base64", "no padded base64"},
		{"base64 with a line end", `{` + core + `,"data_base64":"AP8=\n"}`, "data_base64", "no padded base64"},
		{"base64 as a number", `{` + core + `,"data_base64":1}`, "data_base64", "must be a string"},
		{"float extension", `{` + core + `,"x":1.5}`, "x", "no integer of 32 bits"},
		{"exponent extension", `{` + core + `,"x":1e2}`, "x", "no integer of 32 bits"},
		{"large extension", `{` + core + `,"x":2147483648}`, "x", "no integer of 32 bits"},
		{"object extension", `{` + core + `,"x":{}}`, "x", "must be a string, a boolean or an integer"},
		{"half a surrogate pair", `{` + core + `,"subject":"a\ud800b"}`, "subject", "half of a surrogate pair"},
		{"reversed surrogate pair", `{` + core + `,"subject":"\ude00\ud83d"}`, "subject", "half of a surrogate pair"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseStructured([]byte(tt.json), "acme", "orders")
			var fe *fieldError
			if !errors.As(err, &fe) || fe.Field != tt.field || !strings.Contains(fe.Detail, tt.detail) {
				t.Errorf("got %v, want %s: …%s…", err, tt.field, tt.detail)
			}
		})
	}
}

func TestBatchesNameLines(t *testing.T) {
	parse := func(line []byte) (string, error) {
		if string(line) == "bad" {
			return "", fieldf("id", "is bad")
		}
		return string(line), nil
	}
	tests := []struct {
		name, input string
		refuse      string // an item that write refuses
		want        string // batches written
		err         string
	}{
		{name: "no input", input: "", want: "[]"},
		{name: "blank lines count", input: "a\n\n b \r\n\nc", want: "[[a b] [c]]"},
		{name: "whole batches", input: "a\nb\nc\nd\n", want: "[[a b] [c d]]"},
		{name: "bad line in the first batch", input: "a\nbad\nc\n", want: "[]", err: "line 2: id: is bad; nothing from line 1 on was written"},
		{name: "bad line begins a batch", input: "a\nb\n\nbad\n", want: "[[a b]]", err: "line 4: id: is bad"},
		{name: "refused line", input: "a\nb\nc\nd\n", refuse: "d", want: "[[a b]]", err: "line 4: refused; nothing from line 3 on was written"},
		{name: "long line", input: "a\nb\n" + strings.Repeat("x", 100), want: "[[a b]]", err: "line 3: is longer than 50 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			written := [][]string{}
			err := eachBatch(newLineReader(strings.NewReader(tt.input), 50), 2, parse, func(items []string, at func(int)) error {
				for i, item := range items {
					at(i)
					if item == tt.refuse {
						return errors.New("refused")
					}
				}
				written = append(written, items)
				return nil
			})
			if got := fmt.Sprint(written); got != tt.want {
				t.Errorf("wrote %s, want %s", got, tt.want)
			}
			if got := errorText(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
		})
	}
}

func TestUnreadableInputIsAnError(t *testing.T) {
	err := eachBatch(newLineReader(io.MultiReader(strings.NewReader("a\n"), brokenReader{}), 50), 2,
		func(line []byte) (string, error) { return string(line), nil },
		func([]string, func(int)) error { t.Error("wrote a batch that was not read whole"); return nil })
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, os.ErrClosed }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func FuzzStructured(f *testing.F) {
	f.Add([]byte(`{` + core + `,"data":{"a":[1,"\ud83d\ude00"]},"x":"\\u"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseStructured(line, "t", "s") // must not panic
		if err == nil && e.Data.Kind() == outbox.DataAbsent && len(e.Data.Bytes()) > 0 {
			t.Error("absent data with bytes")
		}
	})
}
