package outbox

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJSONData(t *testing.T) {
	nest := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	tests := []struct {
		name string
		text string
		ok   bool
	}{
		{"an object", `{"a":[1,-2.5e+3,true,false,null,"x"],"b":{}}`, true},
		{"a bare string", `"x"`, true},
		{"a bare number", "-0.0", true},
		{"a number beyond every float", "1e400", true},
		{"a number of many digits", strings.Repeat("9", 1000), true},
		{"blanks around", " \t\r\n1 \t\r\n", true},
		{"every escape", `"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"`, true},
		{"NUL as an escape", `"\u0000"`, true},
		{"duplicate names", `{"a":1,"a":2}`, true},
		{"a long string with a quote at every offset", `["` + strings.Repeat(`0123456789\"`, 20) + `"]`, true},
		{"the deepest arrays", nest("[", "", "]", maxJSONDepth), true},
		{"the deepest objects", nest(`{"a":`, "1", "}", maxJSONDepth), true},
		{"arrays one level too deep", nest("[", "", "]", maxJSONDepth+1), false},
		{"objects one level too deep", nest(`{"a":`, "1", "}", maxJSONDepth+1), false},
		{"a million open brackets", strings.Repeat("[", 1_000_000), false},
		{"nothing", "", false},
		{"blanks only", "  ", false},
		{"two values", "1 2", false},
		{"text after the value", `{}x`, false},
		{"a byte order mark", "\ufeff{}", false},
		{"a comma at the end of an array", "[1,]", false},
		{"a comma at the end of an object", `{"a":1,}`, false},
		{"a comma at the start", "[,1]", false},
		{"no colon", `{"a" 1}`, false},
		{"no value", `{"a":}`, false},
		{"a name that is no string", `{1:2}`, false},
		{"a name without quotes", `{a:2}`, false},
		{"mismatched brackets", `[1}`, false},
		{"mismatched braces", `{"a":1]`, false},
		{"an unclosed array", "[1", false},
		{"an unclosed object", `{"a":1`, false},
		{"an unclosed string", `"abc`, false},
		{"an unclosed escape", `"abc\`, false},
		{"a short unicode escape", `"\u12"`, false},
		{"no hex in a unicode escape", `"\u12g4"`, false},
		{"an unknown escape", `"\x"`, false},
		{"a raw newline in a string", "\"a\nb\"", false},
		{"a raw newline at any place of a long string", "\"0123\n56789012345678901234567890\"", false},
		{"a raw NUL in a string", "\"a\x00b\"", false},
		{"single quotes", `'a'`, false},
		{"a comment", "1 // one", false},
		{"a leading zero", "01", false},
		{"a leading plus", "+1", false},
		{"a point at the start", ".5", false},
		{"a point at the end", "1.", false},
		{"an exponent without digits", "1e", false},
		{"a minus alone", "-", false},
		{"hexadecimal", "0x1", false},
		{"NaN", "NaN", false},
		{"a literal in capitals", "True", false},
		{"half a literal", "tru", false},
		{"a literal too long", "nulll", false},
		{"a lone high surrogate", `"\ud83d"`, false},
		{"a lone low surrogate", `"\ude00"`, false},
		{"surrogates in the wrong order", `"\ude00\ud83d"`, false},
		{"two low surrogates", `"\ude00\ude00"`, false},
		{"two high surrogates", `"\ud83d\ud83d"`, false},
		{"a high surrogate before another escape", `"\ud83d\n"`, false},
		{"a high surrogate before text", `"\ud83dxxxxxx"`, false},
		{"a lone surrogate in a name", `{"\ud83d":1}`, false},
		{"invalid UTF-8", "\"\xff\"", false},
		{"an encoded surrogate", "\"\xed\xa0\x80\"", false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := checkJSON([]byte(tc.text))
			if (p == nil) != tc.ok {
				t.Errorf("got %v", p)
			}
		})
	}
}

func TestCanonicalJSONKeepsTheValue(t *testing.T) {
	for _, text := range []string{
		`{"b":[{"z":1,"y":{}}],"a":{"d":[[]],"c":"\u0041"}}`, `[1,2,{"a":[{"b":1},{"a":2}]},3]`, `{"a":{"b":{"c":{}}},"A":[{"x":[]},{}]}`,
	} {
		var want, got any
		out := appendCanonicalJSON(nil, []byte(text))
		if json.Unmarshal([]byte(text), &want) != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%s: %s", text, out)
		}
		// encoding/json sorts members too.
		a, _ := json.Marshal(want)
		if !bytes.Equal(a, out) {
			t.Errorf("%s: got %s, want %s", text, out, a)
		}
	}
}

// FuzzJSON compares the checker with encoding/json, and checks what the structured
// form promises of the canonical form.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":9007199254740993,"a":"<&>","a":1e400}`, `[[[{"":null}]]]`, `"\ud83d\ude00"`, `"\ud83d"`, ` 1 `, "01", `{"a":1,}`,
		"\"\xff\"", `{"\u0061":{"x":[]},"a":{"y":{}}}`, "\"\u2028<\\/\"", "-0.0e-00", `"\\\""`, "\ufeff1", "[" + strings.Repeat("[", 64),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := checkJSON(b) == nil
		if valid && !json.Valid(b) {
			t.Fatalf("%q is not JSON", b)
		}
		if !valid {
			// encoding/json takes lone surrogates and bytes that are not UTF-8.
			if json.Valid(b) && utf8.Valid(b) && !bytes.Contains(bytes.ToLower(b), []byte(`\ud`)) {
				t.Fatalf("%q is JSON", b)
			}
			return
		}
		out := appendCanonicalJSON(nil, b)
		if len(out) > len(b) {
			t.Errorf("%q grows to %q", b, out)
		}
		if p := checkJSON(out); p != nil {
			t.Fatalf("%q becomes %q: %v", b, out, p)
		}
		if again := appendCanonicalJSON(nil, out); !bytes.Equal(again, out) {
			t.Errorf("%q becomes %q, then %q", b, out, again)
		}
		if want := viaEncodingJSON(b); want == nil || !bytes.Equal(viaEncodingJSON(out), want) {
			t.Errorf("%q becomes %q, another value", b, out)
		}
	})
}

// viaEncodingJSON is b after encoding/json has read and written it, numbers as
// spelled; nil if it cannot.
func viaEncodingJSON(b []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return out
}
