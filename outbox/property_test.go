package outbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

// genEvent draws valid events. rapid prints the seed of a failure.
var genEvent = rapid.Custom(func(t *rapid.T) Event {
	text := func(name string, limit int) string {
		return rapid.StringOfN(rapid.RuneFrom(nil, textRanges...), 1, 20, limit).Draw(t, name)
	}
	optional := func(name string, draw func() string) string {
		if rapid.Bool().Draw(t, "has "+name) {
			return draw()
		}
		return ""
	}
	e := Event{
		Tenant: text("tenant", 255),
		Stream: rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,20}`).Draw(t, "stream"),
		ID:     text("id", 1024), Source: genURIReference.Draw(t, "source"), Type: text("type", 1024),
		Subject:      optional("subject", func() string { return text("subject", 2048) }),
		DataSchema:   optional("schema", func() string { return genURI.Draw(t, "schema") }),
		PartitionKey: optional("key", func() string { return text("key", 255) }),
	}
	if rapid.Bool().Draw(t, "has time") {
		micros := rapid.Int64Range(0, maxTime.UnixMicro()).Draw(t, "micros")
		e.Time = time.UnixMicro(micros).UTC()
	}
	e.Extensions = rapid.MapOfN(genExtensionName, genValue, 0, 12).Draw(t, "extensions")
	if len(e.Extensions) == 0 {
		e.Extensions = nil
	}
	switch rapid.IntRange(0, 2).Draw(t, "data kind") {
	case 1:
		e.Data = JSON(genJSON(t, 3))
		e.ContentType = rapid.SampledFrom([]string{"application/json", "text/x+json; a=b"}).Draw(t, "content type")
	case 2:
		e.Data = Binary(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data"))
		e.ContentType = rapid.SampledFrom([]string{"text/plain", `a/b; c="d \" e"`, "application/json"}).Draw(t, "content type")
	}
	return e
})

var genExtensionName = rapid.StringMatching(`[a-z0-9]{1,20}`).Filter(func(s string) bool {
	return checkExtensionName(s) == nil && s != "traceparent" && s != "tracestate"
})

var genURIReference = rapid.StringMatching(`(/?[a-zA-Z0-9._~!$&'()*+,;=@-]{1,8}(%[0-9A-Fa-f]{2})?){1,4}(\?[a-z/?:=]{0,5})?(#[a-z]{0,5})?`).
	Filter(func(s string) bool { return checkSource(s) == nil })

var genURI = rapid.StringMatching(`[a-z][a-z0-9+.-]{0,5}:(//[a-z0-9.]{1,8}(:[0-9]{1,4})?)?(/[a-zA-Z0-9._~-]{0,8}){0,3}(#[a-z]{0,5})?`).
	Filter(func(s string) bool { return checkURI(s) == nil })

var genValue = rapid.Custom(func(t *rapid.T) Value {
	switch ValueType(rapid.IntRange(1, 7).Draw(t, "type")) {
	case TypeBoolean:
		return Bool(rapid.Bool().Draw(t, "bool"))
	case TypeInteger:
		return Int(rapid.Int32().Draw(t, "int"))
	case TypeBinary:
		return Bytes(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"))
	case TypeURI:
		return URI(genURI.Draw(t, "uri"))
	case TypeURIReference:
		return URIReference(genURIReference.Draw(t, "reference"))
	case TypeTimestamp:
		return TimestampOf(time.Unix(rapid.Int64Range(0, 1<<35).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")))
	}
	return String(rapid.StringOfN(rapid.RuneFrom(nil, textRanges...), 0, 20, -1).Draw(t, "string"))
})

// genJSON draws JSON text with blanks, escapes and duplicate names.
func genJSON(t *rapid.T, depth int) []byte {
	blank := rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r"})
	str := func() string {
		return rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `"é"`, `"\u00e9"`, `"\ud83d\ude00"`, `"\"\\\/\n"`, `"<&>"`, `""`, `"0123456789"`}).Draw(t, "string")
	}
	var out []byte
	add := func(s string) { out = append(out, s...); out = append(out, blank.Draw(t, "blank")...) }
	add("")
	kinds := 4
	if depth == 0 {
		kinds = 2
	}
	n := rapid.IntRange(0, 4).Draw(t, "length")
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		add(rapid.SampledFrom([]string{"0", "-0", "1e400", "9007199254740993", "1.50", "true", "false", "null"}).Draw(t, "scalar"))
	case 2:
		add(str())
	case 3:
		add("[")
		for i := range n {
			if i > 0 {
				add(",")
			}
			add(string(genJSON(t, depth-1)))
		}
		add("]")
	case 4:
		add("{")
		for i := range n {
			if i > 0 {
				add(",")
			}
			add(str())
			add(":")
			add(string(genJSON(t, depth-1)))
		}
		add("}")
	}
	return out
}

func TestStoredEventsDecodeToThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEvent.Draw(t, "event")
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
		c := storedColumns(&e)
		got, _, err := c.decode(1)
		if err != nil {
			t.Fatal(err)
		}
		want := e
		if want.Data.kind != DataAbsent && want.Data.bytes == nil {
			want.Data.bytes = []byte{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("\n got %+v\nwant %+v", got, want)
		}
		if !e.sameContent(c) {
			t.Fatal("the stored row differs from its event")
		}
	})
}

func TestStructuredFormHasTheEventsMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEvent.Draw(t, "event")
		body, err := e.AppendStructured(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > e.size() {
			t.Fatalf("%d bytes exceed the bound %d", len(body), e.size())
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		want := map[string]string{"specversion": "1.0"}
		for name, text := range map[string]string{
			"id": e.ID, "source": e.Source, "type": e.Type, "subject": e.Subject, "time": e.shortTime(),
			"datacontenttype": e.ContentType, "dataschema": e.DataSchema, "partitionkey": e.PartitionKey,
		} {
			if text != "" {
				want[name] = text
			}
		}
		for name, v := range e.Extensions {
			want[name] = v.Text()
		}
		switch e.Data.kind {
		case DataJSON:
			got, want := viaEncodingJSON(members["data"]), viaEncodingJSON(e.Data.bytes)
			if want == nil || !bytes.Equal(got, want) {
				t.Fatalf("data %s, want %s", got, want)
			}
			delete(members, "data")
		case DataBinary:
			want["data_base64"] = base64.StdEncoding.EncodeToString(e.Data.bytes)
		}
		for name, text := range want {
			raw := members[name]
			var s string
			if json.Unmarshal(raw, &s) != nil {
				s = string(raw)
			}
			if s != text {
				t.Fatalf("%s: got %q, want %q", name, s, text)
			}
		}
		if len(members) != len(want) {
			t.Fatalf("members %v, want %v", members, want)
		}
	})
}

func TestAttributesDecodeToThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := genEvent.Draw(t, "event")
		size := len(e.Data.Bytes())
		for _, a := range e.AppendAttributes(nil) {
			size += len("ce-") + len(a.Name) + len(": \r\n") + len(a.Value)
			value, err := url.PathUnescape(a.Value)
			if err != nil || strings.ContainsFunc(a.Value, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
				t.Fatalf("%s: %q, %v", a.Name, a.Value, err)
			}
			if v, ok := e.Extensions[a.Name]; ok && value != v.Text() {
				t.Fatalf("%s: got %q, want %q", a.Name, value, v.Text())
			}
			if a.Name == "id" && value != e.ID || a.Name == "subject" && value != e.Subject {
				t.Fatalf("%s: got %q", a.Name, value)
			}
		}
		if size > e.size() {
			t.Fatalf("%d bytes exceed the bound %d", size, e.size())
		}
	})
}

// textRanges are characters that CloudEvents strings may hold, with those among them that
// some encoding treats specially.
var textRanges = []*unicode.RangeTable{
	{R16: []unicode.Range16{{Lo: ' ', Hi: '~', Stride: 1}}},
	{R16: []unicode.Range16{{Lo: 0xa0, Hi: 0x2ff, Stride: 1}, {Lo: 0x2028, Hi: 0x2029, Stride: 1}, {Lo: 0xffee, Hi: 0xfffd, Stride: 15}}},
	{R32: []unicode.Range32{{Lo: 0x1f600, Hi: 0x1f64f, Stride: 1}}},
}
