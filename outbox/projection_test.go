package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"testing"
	"time"
)

const (
	exampleSource = "https://example.test/source"
	traceparent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01"
)

func mustTime(tb testing.TB, s string) time.Time {
	tb.Helper()
	parsed, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		tb.Fatal(err)
	}
	return parsed
}

// fullEvent has every attribute and every type of extension.
func fullEvent(tb testing.TB) Event {
	return Event{
		Tenant: "tenant-a", Stream: "audit.v1", ID: "evt-full", Source: exampleSource, Type: "com.example.audit",
		Subject: `subject " % café`, Time: mustTime(tb, "2026-01-01T00:00:00.123456Z"),
		ContentType: "application/problem+json; charset=utf-8", DataSchema: "https://example.test/schema",
		PartitionKey: "partition key/% café",
		Extensions: map[string]Value{
			"binary":      Bytes([]byte{0x00, 0xff, 0x10}),
			"boolean":     Bool(true),
			"integer":     Int(-7),
			"reference":   URIReference("/schema?x=space%20value"),
			"string":      String(`space " % café`),
			"timestamp":   Timestamp("2026-01-01T00:00:00.12Z"),
			"traceparent": String(traceparent),
			"tracestate":  String("vendor=value"),
			"uri":         URI("https://example.test/a%20b"),
			"xextra":      String("opaque"),
		},
		Data: JSON([]byte(`{"z":"raw café","a":[true,1]}`)),
	}
}

// projected is an event with the exact bytes of each of its forms.
type projected struct {
	name       string
	event      Event
	extensions string
	structured string
	attributes []Attribute
	body       string
	messageID  string // for tenant-a
	isolatedID string
}

func projectedEvents(tb testing.TB) []projected {
	basic := func(id, typ string) Event {
		return Event{Tenant: "tenant-a", Stream: "audit", ID: id, Source: exampleSource, Type: typ}
	}
	basicAttributes := func(id, typ string) []Attribute {
		return []Attribute{{"specversion", "1.0"}, {"id", id}, {"source", exampleSource}, {"type", typ}}
	}
	binary := basic("evt-binary", "com.example.binary")
	binary.ContentType, binary.Data = "application/octet-stream", Binary([]byte{0x00, 0x01, 0x02, 0x7f, 0x80, 0xff})
	empty := basic("evt-empty", "com.example.empty")
	empty.Data = Binary(nil)
	scalar := basic("evt-scalar", "com.example.scalar")
	scalar.ContentType, scalar.Data = "application/vnd.example+json", JSON([]byte("42"))
	text := basic("evt-text", "com.example.text")
	text.ContentType, text.Data = "text/plain; charset=utf-8", Binary([]byte("héllo, café"))
	return []projected{
		{
			name: "every attribute and extension type, JSON data", event: fullEvent(tb),
			extensions: `{"binary":{"type":"binary","value":"AP8Q"},"boolean":{"type":"boolean","value":true},"integer":{"type":"integer","value":-7},` +
				`"reference":{"type":"uri-reference","value":"/schema?x=space%20value"},"string":{"type":"string","value":"space \" % café"},` +
				`"timestamp":{"type":"timestamp","value":"2026-01-01T00:00:00.12Z"},` +
				`"traceparent":{"type":"string","value":"00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01"},` +
				`"tracestate":{"type":"string","value":"vendor=value"},"uri":{"type":"uri","value":"https://example.test/a%20b"},` +
				`"xextra":{"type":"string","value":"opaque"}}`,
			structured: `{"specversion":"1.0","id":"evt-full","source":"https://example.test/source","type":"com.example.audit",` +
				`"subject":"subject \" % café","time":"2026-01-01T00:00:00.123456Z","datacontenttype":"application/problem+json; charset=utf-8",` +
				`"dataschema":"https://example.test/schema","partitionkey":"partition key/% café","binary":"AP8Q","boolean":true,"integer":-7,` +
				`"reference":"/schema?x=space%20value","string":"space \" % café","timestamp":"2026-01-01T00:00:00.12Z",` +
				`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-0123456789abcdef-01","tracestate":"vendor=value",` +
				`"uri":"https://example.test/a%20b","xextra":"opaque","data":{"a":[true,1],"z":"raw café"}}`,
			attributes: []Attribute{
				{"specversion", "1.0"}, {"id", "evt-full"}, {"source", exampleSource}, {"type", "com.example.audit"},
				{"subject", "subject%20%22%20%25%20caf%C3%A9"}, {"time", "2026-01-01T00:00:00.123456Z"},
				{"dataschema", "https://example.test/schema"}, {"partitionkey", "partition%20key/%25%20caf%C3%A9"},
				{"binary", "AP8Q"}, {"boolean", "true"}, {"integer", "-7"}, {"reference", "/schema?x=space%2520value"},
				{"string", "space%20%22%20%25%20caf%C3%A9"}, {"timestamp", "2026-01-01T00:00:00.12Z"},
				{"traceparent", traceparent}, {"tracestate", "vendor=value"},
				{"uri", "https://example.test/a%2520b"}, {"xextra", "opaque"},
				{"datacontenttype", "application/problem+json;%20charset=utf-8"},
			},
			body:       `{"z":"raw café","a":[true,1]}`,
			messageID:  "563fe814f0d90dcea7aa581a18041fed9571e4b7d4ca662c4a54434250538132",
			isolatedID: "9e6bd7726ce8e84334bbe153bf553ee82eb710fbee231d0ec3e5ec152502d8a8",
		},
		{
			name: "binary data", event: binary, extensions: "{}",
			structured: `{"specversion":"1.0","id":"evt-binary","source":"https://example.test/source","type":"com.example.binary",` +
				`"datacontenttype":"application/octet-stream","data_base64":"AAECf4D/"}`,
			attributes: append(basicAttributes("evt-binary", "com.example.binary"), Attribute{"datacontenttype", "application/octet-stream"}),
			body:       "\x00\x01\x02\x7f\x80\xff",
			messageID:  "171ec562b0d423a2fcdcef7cb4237791bbc41b8432fc94b88f4ced818a8c9afa",
			isolatedID: "b96f9bca3400d1e9d16707f53ea9ba32ba7983b3b9055460b3fbd14a1e5e2ce3",
		},
		{
			name: "absent data", event: basic("evt-absent", "com.example.empty"), extensions: "{}",
			structured: `{"specversion":"1.0","id":"evt-absent","source":"https://example.test/source","type":"com.example.empty"}`,
			attributes: basicAttributes("evt-absent", "com.example.empty"),
			messageID:  "5e1aa1b99efbb59a0ce04651c1c21e48225c43b8e0666c3d16fffe3f7c78a18f",
			isolatedID: "726102ccc12d069b3e39dfe2e41a0a3a1b7c5a69ce3f3a0b876cbe596b277a63",
		},
		{
			name: "data that is present and empty", event: empty, extensions: "{}",
			structured: `{"specversion":"1.0","id":"evt-empty","source":"https://example.test/source","type":"com.example.empty","data_base64":""}`,
			attributes: basicAttributes("evt-empty", "com.example.empty"),
			messageID:  "7be971371f94265928dba85000af1906e97ce27864979b5f88953f0e6a32d654",
			isolatedID: "a14d617329a1f42ec181d697be8b91cce5281c29d6acbbb3169e28041488e20b",
		},
		{
			name: "a JSON scalar", event: scalar, extensions: "{}",
			structured: `{"specversion":"1.0","id":"evt-scalar","source":"https://example.test/source","type":"com.example.scalar",` +
				`"datacontenttype":"application/vnd.example+json","data":42}`,
			attributes: append(basicAttributes("evt-scalar", "com.example.scalar"), Attribute{"datacontenttype", "application/vnd.example+json"}),
			body:       "42",
			messageID:  "f37bc4f2dc0836139851b56262e47023f4ede6a173a31de410b55b64682be7bc",
			isolatedID: "fc8cb25d536df4bc7914223c69700dab6580019858c558688a2617a7ba54ed21",
		},
		{
			name: "text is binary data", event: text, extensions: "{}",
			structured: `{"specversion":"1.0","id":"evt-text","source":"https://example.test/source","type":"com.example.text",` +
				`"datacontenttype":"text/plain; charset=utf-8","data_base64":"aMOpbGxvLCBjYWbDqQ=="}`,
			attributes: append(basicAttributes("evt-text", "com.example.text"), Attribute{"datacontenttype", "text/plain;%20charset=utf-8"}),
			body:       "héllo, café",
			messageID:  "8133a660ed93c9fb6c560e25b349ebd0ecd5faa5fd3b58b355cababad26fefac",
			isolatedID: "8116823ad5f584179424cb91acd8acae1093f9a69466072c1ab2298b33c100c2",
		},
	}
}

func TestProjectionsHaveTheirExactBytes(t *testing.T) {
	for _, tc := range projectedEvents(t) {
		t.Run(tc.name, func(t *testing.T) {
			e := tc.event
			if err := e.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := e.storedExtensions(); got != tc.extensions {
				t.Errorf("stored extensions\n got %s\nwant %s", got, tc.extensions)
			}
			structured, err := e.AppendStructured([]byte("kept"))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(structured); got != "kept"+tc.structured {
				t.Errorf("structured\n got %s\nwant %s", got, tc.structured)
			}
			if got := e.AppendAttributes(nil); !reflect.DeepEqual(got, tc.attributes) {
				t.Errorf("attributes\n got %q\nwant %q", got, tc.attributes)
			}
			if got := string(e.Data.Bytes()); got != tc.body {
				t.Errorf("body %q, want %q", got, tc.body)
			}
			if got := e.MessageID(); got != tc.messageID {
				t.Errorf("message id %s, want %s", got, tc.messageID)
			}
			if got := e.IsolatedMessageID(); got != tc.isolatedID {
				t.Errorf("isolated message id %s, want %s", got, tc.isolatedID)
			}
		})
	}
}

func TestMessageIDsKeepTheirPartsApart(t *testing.T) {
	a := Event{Tenant: "t", Source: "ab", ID: "c"}
	b := Event{Tenant: "t", Source: "a", ID: "bc"}
	if a.MessageID() == b.MessageID() || a.IsolatedMessageID() == b.IsolatedMessageID() {
		t.Error("moving a byte from source to id gives the same message id")
	}
	long := Event{Tenant: "t", Source: string(bytes.Repeat([]byte("s"), 1024)), ID: string(bytes.Repeat([]byte("i"), 1024))}
	if len(long.MessageID()) != 64 {
		t.Error("a long identity has no 64-digit message id")
	}
}

func TestTimeIsPublishedWithoutTrailingZeros(t *testing.T) {
	tests := []struct{ name, stored, published string }{
		{"no fraction", "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00Z"},
		{"milliseconds", "2026-01-01T00:00:00.120000Z", "2026-01-01T00:00:00.12Z"},
		{"microseconds", "2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000001Z"},
		{"a round minute keeps its zeros", "2026-10-10T10:10:10.000000Z", "2026-10-10T10:10:10Z"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			parsed, ok := parseTime(tc.stored)
			if !ok {
				t.Fatal("not parsed")
			}
			e := Event{Time: parsed.In(time.FixedZone("", 3600))}
			if got := e.shortTime(); got != tc.published {
				t.Errorf("published %s, want %s", got, tc.published)
			}
			if got := formatTime(e.Time); got != tc.stored {
				t.Errorf("stored %s, want %s", got, tc.stored)
			}
		})
	}
}

func TestPercentEncoding(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing to encode", "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~azAZ09", "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~azAZ09"},
		{"space, quote and percent", ` "%`, "%20%22%25"},
		{"an encoded value is encoded once more", "%20", "%2520"},
		{"UTF-8 in upper-case hex", "é€😀", "%C3%A9%E2%82%AC%F0%9F%98%80"},
		{"control characters and DEL", "\r\n\x7f", "%0D%0A%7F"},
		{"outer blanks survive", " x ", "%20x%20"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := PercentEncode(tc.in)
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if back, err := url.PathUnescape(got); err != nil || back != tc.in {
				t.Errorf("decodes to %q, %v", back, err)
			}
		})
	}
}

func TestStructuredJSONData(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"numbers as spelled", `[1e400,-0,1.0,9007199254740993,1E+5,0.10]`, `[1e400,-0,1.0,9007199254740993,1E+5,0.10]`},
		{"members sorted, nested ones too", `{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":0}`, `{"a":0,"b":{"c":[{"e":2,"f":1}],"d":1}}`},
		{"each object of an array has its own members", `[{"b":{"d":1,"c":{}},"a":0},{"z":1,"y":{"x":1,"w":2}},{}]`, `[{"a":0,"b":{"c":{},"d":1}},{"y":{"w":2,"x":1},"z":1},{}]`},
		{"sorted by bytes, not by UTF-16", `{"\ud83d\ude00":1,"\uffee":2,"Z":3,"a":4}`, "{\"Z\":3,\"a\":4,\"\uffee\":2,\"\U0001F600\":1}"},
		{"the last of duplicates counts", `{"a":{"x":1},"b":2,"a":{"y":[{"q":1,"p":2}]},"b":3}`, `{"a":{"y":[{"p":2,"q":1}]},"b":3}`},
		{"an escaped name is the same name", `{"\u0061":1,"a":2}`, `{"a":2}`},
		{"the field's own case", `{"b":9007199254740993,"a":"<&>","a":1e400}`, `{"a":1e400,"b":9007199254740993}`},
		{"no HTML escaping", `"<&>\u003c\u2028"`, "\"<&><\u2028\""},
		{"needless escapes go", `"\/\u00e9\ud83d\ude00\u007f"`, "\"/é😀\u007f\""},
		{"needed escapes stay", `"\"\\\b\f\n\r\t\u0000\u001F\u0008"`, `"\"\\\b\f\n\r\t\u0000\u001f\b"`},
		{"blanks go, outside strings only", " { \"a b\" :\t[ 1 ,\r\n 2 ] , \"c\" : \" d \" } \n", `{"a b":[1,2],"c":" d "}`},
		{"empty containers", `{"a":{},"b":[ ],"c":[{}]}`, `{"a":{},"b":[],"c":[{}]}`},
		{"an empty name", `{"":1,"a":{"":2}}`, `{"":1,"a":{"":2}}`},
		{"literals", ` [ true , false , null ] `, `[true,false,null]`},
		{"a string alone", `"x"`, `"x"`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := Event{ID: "i", Source: "s", Type: "t", ContentType: "application/json", Data: JSON([]byte(tc.in))}
			out, err := e.AppendStructured(nil)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"specversion":"1.0","id":"i","source":"s","type":"t","datacontenttype":"application/json","data":` + tc.want + `}`
			if string(out) != want {
				t.Errorf("\n got %s\nwant %s", out, want)
			}
			if !json.Valid(out) {
				t.Error("not JSON")
			}
		})
	}
}

func TestStructuredRefusesInvalidJSONData(t *testing.T) {
	e := Event{ID: "i", Source: "s", Type: "t", ContentType: "application/json", Data: JSON([]byte(`{"a":`))}
	out, err := e.AppendStructured([]byte("kept"))
	var invalid *InvalidEventError
	if !errors.As(err, &invalid) || invalid.Field != "data" || string(out) != "kept" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestStructuredIsLinearInDepth(t *testing.T) {
	// Quadratic work would copy some 10 GB here.
	depth := maxJSONDepth
	deep := bytes.Repeat([]byte(`{"b":0,"a":`), depth)
	deep = append(deep, bytes.Repeat([]byte("1"), 1<<20)...)
	deep = append(deep, bytes.Repeat([]byte("}"), depth)...)
	e := Event{ID: "i", Source: "s", Type: "t", ContentType: "application/json", Data: JSON(deep)}
	out, err := e.AppendStructured(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out) {
		t.Error("encoding/json does not read the deepest envelope")
	}
}
