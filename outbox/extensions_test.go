package outbox

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestValuesKeepTypeAndText(t *testing.T) {
	tests := []struct {
		name string
		v    Value
		typ  ValueType
		text string
	}{
		{"true", Bool(true), TypeBoolean, "true"},
		{"false", Bool(false), TypeBoolean, "false"},
		{"the smallest integer", Int(-1 << 31), TypeInteger, "-2147483648"},
		{"the largest integer", Int(1<<31 - 1), TypeInteger, "2147483647"},
		{"a string", String("a b"), TypeString, "a b"},
		{"binary", Bytes([]byte{0, 0xff, 0x10, 0x20}), TypeBinary, "AP8QIA=="},
		{"empty binary", Bytes(nil), TypeBinary, ""},
		{"a URI", URI("urn:a"), TypeURI, "urn:a"},
		{"a URI-reference", URIReference("/a"), TypeURIReference, "/a"},
		{"a timestamp keeps its spelling", Timestamp("2026-01-01T01:00:00.10+01:00"), TypeTimestamp, "2026-01-01T01:00:00.10+01:00"},
		{"a time", TimestampOf(time.Date(2026, 1, 1, 1, 0, 0, 120_000_000, time.FixedZone("", 3600))), TypeTimestamp, "2026-01-01T00:00:00.12Z"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if tc.v.Type() != tc.typ || tc.v.Text() != tc.text {
				t.Fatalf("got %v %q", tc.v.Type(), tc.v.Text())
			}
			if p := tc.v.check(); p != nil {
				t.Error(p)
			}
			parsed, err := ParseValue(tc.typ, tc.text)
			if err != nil || parsed != tc.v {
				t.Errorf("parsed %v, %v", parsed, err)
			}
			if typ, ok := ParseValueType(tc.typ.String()); !ok || typ != tc.typ {
				t.Errorf("type name %q leads to %v", tc.typ, typ)
			}
		})
	}
}

func TestValueAccessorsTellTheirTypeFromOthers(t *testing.T) {
	if b, ok := Bool(true).Bool(); !ok || !b {
		t.Error("Bool")
	}
	if i, ok := Int(-7).Int(); !ok || i != -7 {
		t.Error("Int")
	}
	if b, ok := Bytes([]byte{1, 2}).Bytes(); !ok || string(b) != "\x01\x02" {
		t.Error("Bytes")
	}
	if at, ok := Timestamp("2026-01-01T01:00:00+01:00").Time(); !ok || !at.Equal(mustTime(t, "2026-01-01T00:00:00Z")) {
		t.Error("Time")
	}
	for _, v := range []Value{{}, String("true"), String("7"), String("AQI="), String("2026-01-01T00:00:00Z"), Timestamp("x")} {
		_, isBool := v.Bool()
		_, isInt := v.Int()
		_, isBytes := v.Bytes()
		_, isTime := v.Time()
		if isBool || isInt || isBytes || isTime {
			t.Errorf("%v %q passes for another type", v.Type(), v.Text())
		}
	}
}

func TestParseValueRefusesOtherSpellings(t *testing.T) {
	tests := []struct {
		typ  ValueType
		text string
	}{
		{TypeBoolean, "True"}, {TypeBoolean, "1"}, {TypeBoolean, ""},
		{TypeInteger, "2147483648"}, {TypeInteger, "-2147483649"}, {TypeInteger, "+7"}, {TypeInteger, "07"},
		{TypeInteger, "-0"}, {TypeInteger, "7.0"}, {TypeInteger, "1e3"}, {TypeInteger, ""},
		{TypeString, "a\nb"}, {TypeString, "a\xff"}, {TypeString, "\ufffe"},
		{TypeBinary, "AP8"}, {TypeBinary, "AP8=="}, {TypeBinary, "AP9="}, {TypeBinary, "A==="}, {TypeBinary, "AP-_"},
		{TypeBinary, "AP8Q\n"}, {TypeBinary, "===="}, {TypeBinary, "AB=="}, {TypeBinary, "A=B="},
		{TypeURI, "/a"}, {TypeURI, ""}, {TypeURI, "urn:a b"},
		{TypeURIReference, ""}, {TypeURIReference, "a b"},
		{TypeTimestamp, ""}, {TypeTimestamp, "2026-01-01"}, {TypeTimestamp, "2026-01-01T00:00:60Z"},
		{0, "x"}, {8, "x"}, {255, "x"},
	}
	for _, tc := range tests {
		if v, err := ParseValue(tc.typ, tc.text); err == nil || v != (Value{}) {
			t.Errorf("%v %q is accepted", tc.typ, tc.text)
		}
	}
}

func TestBase64AgreesWithTheStandardLibrary(t *testing.T) {
	for n := range 300 {
		b := make([]byte, n%7)
		for i := range b {
			b[i] = byte(n*31 + i*17)
		}
		if v := Bytes(b); !isBase64(v.Text()) {
			t.Errorf("%q is refused", v.Text())
		}
	}
}

func TestStoredExtensionsRoundTrip(t *testing.T) {
	e := fullEvent(t)
	e.Extensions["quoted"] = String(`\"\\`)
	e.Extensions["tag"] = String(`","value":"x"}`)
	e.Extensions["empty"] = String("")
	e.Extensions["nothing"] = Bytes(nil)
	stored := e.storedExtensions()
	got, p := decodeExtensions(stored)
	if p != nil {
		t.Fatal(p)
	}
	if !reflect.DeepEqual(got, e.Extensions) {
		t.Errorf("got %v", got)
	}
	// Any JSON encoder writes the same text for the same map.
	marshalled, err := json.Marshal(map[string]json.RawMessage{"a": json.RawMessage(stored)})
	if err != nil || string(marshalled) != `{"a":`+stored+`}` {
		t.Errorf("not compact JSON: %s", marshalled)
	}
	if empty, p := decodeExtensions("{}"); p != nil || empty != nil {
		t.Errorf("{} decodes to %v, %v", empty, p)
	}
}

func TestStoredExtensionsInAnotherFormAreRefused(t *testing.T) {
	tests := []struct {
		name, text string
		field      string
		detail     string
	}{
		{"nothing", ``, "extensions", "not JSON"},
		{"no JSON", `{"a":`, "extensions", "not JSON"},
		{"not an object", `[]`, "extensions", "from byte 0"},
		{"null", `null`, "extensions", "from byte 0"},
		{"a blank inside", `{"a": {"type":"string","value":"x"}}`, "extensions", "from byte 5"},
		{"a blank in the empty object", `{ }`, "extensions", "stored form"},
		{"a blank at the end", `{"a":{"type":"string","value":"x"}} `, "extensions", "stored form"},
		{"names out of order", `{"b":{"type":"integer","value":1},"a":{"type":"integer","value":1}}`, "extensions", "stored form"},
		{"a name that occurs twice", `{"a":{"type":"integer","value":1},"a":{"type":"integer","value":1}}`, "extensions", "stored form"},
		{"members out of order", `{"a":{"value":1,"type":"integer"}}`, "extensions", "stored form"},
		{"a member too many", `{"a":{"type":"integer","value":1,"x":2}}`, "extensions.a", "is no integer"},
		{"a member too many after a string", `{"a":{"type":"string","value":"x","x":2}}`, "extensions", "stored form"},
		{"a member twice", `{"a":{"type":"string","type":"string","value":"x"}}`, "extensions.a", "unknown type"},
		{"a value without a tag", `{"a":"x"}`, "extensions", "stored form"},
		{"an unknown type", `{"a":{"type":"float","value":1}}`, "extensions.a", `unknown type "float"`},
		{"an empty type", `{"a":{"type":"","value":1}}`, "extensions.a", "unknown type"},
		{"a string for an integer", `{"a":{"type":"integer","value":"7"}}`, "extensions.a", "kind of JSON"},
		{"a number for a string", `{"a":{"type":"string","value":7}}`, "extensions.a", "kind of JSON"},
		{"null for a value", `{"a":{"type":"boolean","value":null}}`, "extensions.a", "is no boolean"},
		{"an integer beyond 32 bits", `{"a":{"type":"integer","value":2147483648}}`, "extensions.a", "is no integer"},
		{"an integer with a fraction", `{"a":{"type":"integer","value":7.0}}`, "extensions.a", "is no integer"},
		{"base64 without padding", `{"a":{"type":"binary","value":"AP8"}}`, "extensions.a", "is no binary"},
		{"a timestamp that is none", `{"a":{"type":"timestamp","value":"yesterday"}}`, "extensions.a", "is no timestamp"},
		{"an escape that is not needed", `{"a":{"type":"string","value":"\u0061"}}`, "extensions", "stored form"},
		{"an escaped slash", `{"a":{"type":"string","value":"\/"}}`, "extensions", "stored form"},
		{"an escaped newline", `{"a":{"type":"string","value":"x\r\nNats-Rollup: all"}}`, "extensions", "stored form"},
		{"a raw newline", "{\"a\":{\"type\":\"string\",\"value\":\"x\r\nNats-Rollup: all\"}}", "extensions.a", "control character U+000D"},
		{"a raw C1 control", "{\"a\":{\"type\":\"string\",\"value\":\"\u0085\"}}", "extensions.a", "control character U+0085"},
		{"bytes that are not UTF-8", "{\"a\":{\"type\":\"string\",\"value\":\"\xff\"}}", "extensions.a", "invalid UTF-8"},
		{"a name in upper case", `{"A":{"type":"integer","value":1}}`, "extensions.A", "a-z"},
		{"a core attribute", `{"source":{"type":"string","value":"x"}}`, "extensions.source", "core attribute"},
		{"a partition key", `{"partitionkey":{"type":"string","value":"x"}}`, "extensions.partitionkey", "PartitionKey"},
		{"tracestate alone", `{"tracestate":{"type":"string","value":"a=1"}}`, "extensions.tracestate", "traceparent"},
		{"a bad traceparent", `{"traceparent":{"type":"string","value":"00-x"}}`, "extensions.traceparent", "traceparent"},
		{"an unended string", `{"a":{"type":"string","value":"x`, "extensions", "not JSON"},
		{"an unended escape", `{"a":{"type":"string","value":"x\`, "extensions", "not JSON"},
		{"an unended number", `{"a":{"type":"integer","value":1`, "extensions", "not JSON"},
		{"a very long bad name", `{"` + strings.Repeat("a", 10_000) + `":{"type":"integer","value":1}}`, "extensions." + strings.Repeat("a", 64) + "…", "limit 20"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			m, p := decodeExtensions(tc.text)
			if p == nil {
				t.Fatalf("accepted as %v", m)
			}
			if p.Field != tc.field || !strings.Contains(p.problem(), tc.detail) {
				t.Errorf("got %v", p)
			}
			if p == notStoredForm {
				t.Error("the marker leaked")
			}
		})
	}
}

func TestValueInJSON(t *testing.T) {
	e := fullEvent(t)
	text, err := json.Marshal(e.Extensions)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]Value
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, e.Extensions) {
		t.Errorf("got %v, %v", back, err)
	}
	var v Value
	if err := json.Unmarshal([]byte(` { "value" : "\u0041\/" , "type" : "string" } `), &v); err != nil || v != String("A/") {
		t.Errorf("got %v, %v", v, err)
	}
	for _, bad := range []string{
		`null`, `{}`, `[]`, `"x"`, `{"type":"string"}`, `{"value":"x"}`, `{"type":"string","value":"x","more":1}`,
		`{"a":1,"type":"string","value":"x"}`, `{"type":"string","value":"\n"}`, `{"type":"integer","value":1.5}`,
		`{"type":"nope","value":1}`, `{"type":"integer","value":"1"}`, `{"type":"boolean","value":[]}`,
	} {
		v := Int(1)
		if err := json.Unmarshal([]byte(bad), &v); err == nil || v != Int(1) {
			t.Errorf("%s is accepted as %v", bad, v)
		}
	}
	if err := new(Value).UnmarshalJSON([]byte(`{"type":`)); err == nil {
		t.Error("broken JSON is accepted")
	}
	if _, err := json.Marshal(Value{}); err == nil {
		t.Error("the zero Value is written")
	}
}

// FuzzDecodeExtensions: no text panics, and what is accepted is exactly what would be
// written.
func FuzzDecodeExtensions(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":{"type":"string","value":"x"}}`, `{"a":{"type":"binary","value":"AP8Q"},"b":{"type":"boolean","value":true}}`,
		`{"a":{"type":"integer","value":-7}}`, `{"a":{"type":"timestamp","value":"2026-01-01T00:00:00Z"}}`,
		`{"a":{"type":"uri","value":"urn:a"},"b":{"type":"uri-reference","value":"/"}}`, `{"a":{"type":"string","value":"\"\\"}}`,
		`{"traceparent":{"type":"string","value":"` + traceparent + `"},"tracestate":{"type":"string","value":"a=1"}}`,
		`{"a":{"type":"string","value":"x\r\n"}}`, `{"a":`, `null`, `{"a":{"type":"integer","value":}}`, "{\"\x00\":1}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, p := decodeExtensions(text)
		if p != nil {
			if p.Field == "" || p.problem() == "" || p == notStoredForm {
				t.Errorf("%q: empty error %+v", text, p)
			}
			return
		}
		if p := checkExtensions(m); p != nil {
			t.Errorf("%q decodes to what Validate refuses: %v", text, p)
		}
		e := Event{Extensions: m}
		if got := e.storedExtensions(); got != text {
			t.Errorf("%q is written back as %q", text, got)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("%q is not JSON", text)
		}
	})
}
