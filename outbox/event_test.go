package outbox

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// validEvent is a small event with JSON data.
func validEvent() Event {
	return Event{
		Tenant: "acme", Stream: "orders", ID: "order-1", Source: "/orders", Type: "com.example.order.placed",
		ContentType: "application/json", Data: JSON([]byte(`{"total":12}`)),
	}
}

func TestValidateAcceptsEveryBoundary(t *testing.T) {
	tests := []struct {
		name string
		set  func(*Event)
	}{
		{"the longest tenant", func(e *Event) { e.Tenant = strings.Repeat("t", 255) }},
		{"a tenant of any printable text", func(e *Event) { e.Tenant = "Größe 100% é😀" }},
		{"the longest stream", func(e *Event) { e.Stream = strings.Repeat("s", 255) }},
		{"a stream of one digit", func(e *Event) { e.Stream = "1" }},
		{"a stream with dots at its end", func(e *Event) { e.Stream = "a.B_c-..d." }},
		{"the longest id", func(e *Event) { e.ID = strings.Repeat("i", 1024) }},
		{"the longest source", func(e *Event) { e.Source, e.ID = "/"+strings.Repeat("s", 2046), "i" }},
		{"source and id together at their limit", func(e *Event) {
			e.Source, e.ID = strings.Repeat("s", 1024), strings.Repeat("i", 1024)
		}},
		{"the longest type", func(e *Event) { e.Type = strings.Repeat("t", 1024) }},
		{"the longest subject", func(e *Event) { e.Subject = strings.Repeat("é", 1024) }},
		{"the longest partition key", func(e *Event) { e.PartitionKey = strings.Repeat("k", 255) }},
		{"the longest dataschema", func(e *Event) { e.DataSchema = "urn:" + strings.Repeat("s", 2044) }},
		{"the longest content type", func(e *Event) { e.ContentType = `application/json;a="` + strings.Repeat("x", 234) + `"` }},
		{"the epoch", func(e *Event) { e.Time = time.Unix(0, 0) }},
		{"the last microsecond of 9999", func(e *Event) { e.Time = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC) }},
		{"the same in another zone", func(e *Event) {
			e.Time = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).In(time.FixedZone("", 14*3600))
		}},
		{"absent data without a content type", func(e *Event) { e.Data, e.ContentType = Data{}, "" }},
		{"absent data with a content type", func(e *Event) { e.Data = Data{} }},
		{"empty data without a content type", func(e *Event) { e.Data, e.ContentType = Binary(nil), "" }},
		{"binary data is never parsed", func(e *Event) { e.Data = Binary([]byte("{\xff")) }},
		{"JSON under any +json type", func(e *Event) { e.ContentType = "application/vnd.acme+JSON; v=1" }},
		{"JSON under text/json", func(e *Event) { e.ContentType = "text/json" }},
		{"a number that no float holds", func(e *Event) { e.Data = JSON([]byte(`{"b":9007199254740993,"a":"<&>","a":1e400}`)) }},
		{"no extensions in a map", func(e *Event) { e.Extensions = map[string]Value{} }},
		{"an extension name of 20 bytes", func(e *Event) { e.Extensions = map[string]Value{"abcdefghij0123456789": Int(1)} }},
		{"an empty string extension", func(e *Event) { e.Extensions = map[string]Value{"x": String("")} }},
		{"a traceparent alone", func(e *Event) { e.Extensions = map[string]Value{"traceparent": String(traceparent)} }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := validEvent()
			tc.set(&e)
			if err := e.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestValidateNamesTheBrokenRule(t *testing.T) {
	ext := func(name string, v Value) func(*Event) {
		return func(e *Event) { e.Extensions = map[string]Value{name: v} }
	}
	tests := []struct {
		name   string
		set    func(*Event)
		field  string
		rule   Rule
		limit  int
		actual int
	}{
		{"no tenant", func(e *Event) { e.Tenant = "" }, "tenant", RuleEmpty, 255, 0},
		{"tenant too long", func(e *Event) { e.Tenant = strings.Repeat("é", 128) }, "tenant", RuleTooLong, 255, 256},
		{"tenant with a newline", func(e *Event) { e.Tenant = "a\nb" }, "tenant", RuleFormat, 0, 0},
		{"tenant with a noncharacter", func(e *Event) { e.Tenant = "a\ufdd0" }, "tenant", RuleFormat, 0, 0},
		{"no stream", func(e *Event) { e.Stream = "" }, "stream", RuleEmpty, 255, 0},
		{"stream too long", func(e *Event) { e.Stream = strings.Repeat("s", 256) }, "stream", RuleTooLong, 255, 256},
		{"stream that starts with a dot", func(e *Event) { e.Stream = ".a" }, "stream", RuleFormat, 0, 0},
		{"stream with a blank", func(e *Event) { e.Stream = "a b" }, "stream", RuleFormat, 0, 0},
		{"stream with a wildcard", func(e *Event) { e.Stream = "a.*" }, "stream", RuleFormat, 0, 0},
		{"stream beyond ASCII", func(e *Event) { e.Stream = "straße" }, "stream", RuleFormat, 0, 0},
		{"no id", func(e *Event) { e.ID = "" }, "id", RuleEmpty, 1024, 0},
		{"id too long", func(e *Event) { e.ID = strings.Repeat("i", 1025) }, "id", RuleTooLong, 1024, 1025},
		{"id with DEL", func(e *Event) { e.ID = "a\x7f" }, "id", RuleFormat, 0, 0},
		{"id that is not UTF-8", func(e *Event) { e.ID = "a\xff" }, "id", RuleFormat, 0, 0},
		{"id with an encoded surrogate", func(e *Event) { e.ID = "a\xed\xa0\x80" }, "id", RuleFormat, 0, 0},
		{"no source", func(e *Event) { e.Source = "" }, "source", RuleEmpty, 2048, 0},
		{"source too long", func(e *Event) { e.Source = strings.Repeat("s", 2049) }, "source", RuleTooLong, 2048, 2049},
		{"source with a blank", func(e *Event) { e.Source = "/a b" }, "source", RuleFormat, 0, 0},
		{"source and id too long together", func(e *Event) {
			e.Source, e.ID = strings.Repeat("s", 1025), strings.Repeat("i", 1024)
		}, "id", RuleTooLong, 2048, 2049},
		{"no type", func(e *Event) { e.Type = "" }, "type", RuleEmpty, 1024, 0},
		{"type too long", func(e *Event) { e.Type = strings.Repeat("t", 1025) }, "type", RuleTooLong, 1024, 1025},
		{"type with a C1 control", func(e *Event) { e.Type = "a\u0085" }, "type", RuleFormat, 0, 0},
		{"subject too long", func(e *Event) { e.Subject = strings.Repeat("s", 2049) }, "subject", RuleTooLong, 2048, 2049},
		{"subject with NUL", func(e *Event) { e.Subject = "a\x00" }, "subject", RuleFormat, 0, 0},
		{"subject with U+FFFE of another plane", func(e *Event) { e.Subject = "\U0010fffe" }, "subject", RuleFormat, 0, 0},
		{"time before the epoch", func(e *Event) { e.Time = time.Unix(0, -1000) }, "time", RuleRange, 0, 0},
		{"time after 9999", func(e *Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "time", RuleRange, 0, 0},
		{"the last nanosecond of 9999", func(e *Event) { e.Time = time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC) }, "time", RuleRange, 0, 0},
		{"time finer than a microsecond", func(e *Event) { e.Time = time.Unix(1, 1001) }, "time", RuleFormat, 0, 0},
		{"content type too long", func(e *Event) { e.ContentType = "a/" + strings.Repeat("b", 254) }, "datacontenttype", RuleTooLong, 255, 256},
		{"content type without a subtype", func(e *Event) { e.ContentType = "json" }, "datacontenttype", RuleFormat, 0, 0},
		{"dataschema too long", func(e *Event) { e.DataSchema = "urn:" + strings.Repeat("s", 2045) }, "dataschema", RuleTooLong, 2048, 2049},
		{"relative dataschema", func(e *Event) { e.DataSchema = "/schema" }, "dataschema", RuleFormat, 0, 0},
		{"partition key too long", func(e *Event) { e.PartitionKey = strings.Repeat("k", 256) }, "partitionkey", RuleTooLong, 255, 256},
		{"partition key with a tab", func(e *Event) { e.PartitionKey = "a\t" }, "partitionkey", RuleFormat, 0, 0},
		{"empty extension name", ext("", Int(1)), "extensions.", RuleEmpty, 20, 0},
		{"extension name too long", ext("abcdefghij0123456789x", Int(1)), "extensions.abcdefghij0123456789x", RuleTooLong, 20, 21},
		{"extension name in upper case", ext("Abc", Int(1)), "extensions.Abc", RuleFormat, 0, 0},
		{"extension name with a hyphen", ext("a-b", Int(1)), `extensions."a-b"`, RuleFormat, 0, 0},
		{"extension with a control character", ext("x", String("x\r\nNats-Rollup: all")), "extensions.x", RuleFormat, 0, 0},
		{"the zero Value", ext("x", Value{}), "extensions.x", RuleEmpty, 0, 0},
		{"the first bad extension by name", func(e *Event) {
			e.Extensions = map[string]Value{"c": {}, "a": Int(1), "b": String("\n"), "d": {}}
		}, "extensions.b", RuleFormat, 0, 0},
		{"traceparent that is no string", ext("traceparent", Int(1)), "extensions.traceparent", RuleFormat, 0, 0},
		{"traceparent of version ff", ext("traceparent", String("ff"+traceparent[2:])), "extensions.traceparent", RuleFormat, 0, 0},
		{"tracestate without traceparent", ext("tracestate", String("a=1")), "extensions.tracestate", RuleMissing, 0, 0},
		{"data without a content type", func(e *Event) { e.ContentType = "" }, "datacontenttype", RuleMissing, 0, 0},
		{"binary data without a content type", func(e *Event) { e.Data, e.ContentType = Binary([]byte("x")), "" }, "datacontenttype", RuleMissing, 0, 0},
		{"JSON data that is no JSON", func(e *Event) { e.Data = JSON([]byte("{")) }, "data", RuleFormat, 0, 0},
		{"JSON data that is empty", func(e *Event) { e.Data = JSON(nil) }, "data", RuleEmpty, 0, 0},
		{"empty JSON data without a content type", func(e *Event) { e.Data, e.ContentType = JSON(nil), "" }, "datacontenttype", RuleMissing, 0, 0},
		{"JSON data under another media type", func(e *Event) { e.ContentType = "text/plain" }, "datacontenttype", RuleFormat, 0, 0},
	}
	for _, name := range []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "partitionkey"} {
		tests = append(tests, struct {
			name   string
			set    func(*Event)
			field  string
			rule   Rule
			limit  int
			actual int
		}{"extension with the reserved name " + name, ext(name, String("x")), "extensions." + name, RuleFormat, 0, 0})
	}
	tests = append(tests, struct {
		name   string
		set    func(*Event)
		field  string
		rule   Rule
		limit  int
		actual int
	}{"extension with the reserved name data_base64", ext("data_base64", String("x")), `extensions."data_base64"`, RuleFormat, 0, 0})
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := validEvent()
			tc.set(&e)
			var got *InvalidEventError
			if err := e.Validate(); !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if got.Field != tc.field || got.Rule != tc.rule || got.Limit != tc.limit || got.Actual != tc.actual {
				t.Errorf("got %+v", *got)
			}
			if !strings.HasPrefix(got.Error(), "invalid event: "+tc.field+": "+string(tc.rule)) {
				t.Errorf("message %q does not name field and rule", got)
			}
		})
	}
}

func TestValidateKeepsAFixedOrder(t *testing.T) {
	// Everything is wrong at first; mending the reported field leads to the next.
	e := Event{
		Time: time.Unix(0, 1), Subject: "\n", ContentType: "x", DataSchema: "x", PartitionKey: "\n",
		Extensions: map[string]Value{"b": {}, "a": {}}, Data: JSON([]byte("{")),
	}
	steps := []struct {
		field string
		mend  func()
	}{
		{"tenant", func() { e.Tenant = "t" }},
		{"stream", func() { e.Stream = "s" }},
		{"id", func() { e.ID = "i" }},
		{"source", func() { e.Source = "s" }},
		{"type", func() { e.Type = "t" }},
		{"time", func() { e.Time = time.Time{} }},
		{"subject", func() { e.Subject = "" }},
		{"datacontenttype", func() { e.ContentType = "" }},
		{"dataschema", func() { e.DataSchema = "" }},
		{"partitionkey", func() { e.PartitionKey = "" }},
		{"extensions.a", func() { e.Extensions["a"] = Int(1) }},
		{"extensions.b", func() { e.Extensions["b"] = Int(1) }},
		{"datacontenttype", func() { e.ContentType = "application/json" }},
		{"data", func() { e.Data = JSON([]byte("{}")) }},
	}
	for _, s := range steps {
		var got *InvalidEventError
		if err := e.Validate(); !errors.As(err, &got) || got.Field != s.field {
			t.Fatalf("got %v, want field %s", err, s.field)
		}
		s.mend()
	}
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTextRefusesWhatCloudEventsForbids(t *testing.T) {
	// Every code point, so that no range has a wrong end.
	for r := rune(0); r <= 0x10ffff; r++ {
		if 0xd800 <= r && r <= 0xdfff {
			continue // not encodable in UTF-8; the raw bytes are tested above
		}
		forbidden := r <= 0x1f || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xffff >= 0xfffe
		if got := checkText("x"+string(r)) != nil; got != forbidden {
			t.Errorf("U+%04X: refused %v, want %v", r, got, forbidden)
		}
	}
}

func TestSizeBound(t *testing.T) {
	for _, tc := range projectedEvents(t) {
		t.Run(tc.name, func(t *testing.T) {
			e := tc.event
			structured, err := e.AppendStructured(nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.structuredSize(); got != len(structured) {
				t.Errorf("structured size %d, want %d", got, len(structured))
			}
			binary := len(e.Data.Bytes())
			for _, a := range e.AppendAttributes(nil) {
				value := a.Value
				if v, ok := e.Extensions[a.Name]; ok {
					value = v.Text()
				}
				switch a.Name {
				case "subject":
					value = e.Subject
				case "partitionkey":
					value = e.PartitionKey
				case "datacontenttype":
					value = e.ContentType
				}
				binary += len("ce-"+a.Name) + 4 + 3*len(value)
			}
			if got := e.size(); got != max(binary, len(structured)) {
				t.Errorf("size %d, want the larger of %d and %d", got, binary, len(structured))
			}
			if err := e.checkSize(e.size()); err != nil {
				t.Errorf("at the limit: %v", err)
			}
			var invalid *InvalidEventError
			if err := e.checkSize(e.size() - 1); !errors.As(err, &invalid) || invalid.Rule != RuleTooBig ||
				invalid.Limit != e.size()-1 || invalid.Actual != e.size() {
				t.Errorf("above the limit: %v", err)
			}
		})
	}
}

func TestValidateAllocatesNothing(t *testing.T) {
	e := fullEvent(t)
	if n := testing.AllocsPerRun(100, func() { _ = e.Validate() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
