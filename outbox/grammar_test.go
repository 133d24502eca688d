package outbox

import (
	"strings"
	"testing"
)

// grammarCase is a text that a grammar takes or refuses.
type grammarCase struct {
	text string
	ok   bool
}

func testGrammar(t *testing.T, check func(string) *InvalidEventError, cases []grammarCase) {
	t.Helper()
	for _, tc := range cases {
		if p := check(tc.text); (p == nil) != tc.ok {
			t.Errorf("%.80q: got %v, want ok=%v", tc.text, p, tc.ok)
		}
	}
}

func TestURIReferenceGrammar(t *testing.T) {
	testGrammar(t, checkURIReference, []grammarCase{
		{"https://example.test/a?b=c#d", true},
		{"https://user:pass@example.test:8080/a//b/", true},
		{"urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", true},
		{"mailto:a@example.test", true},
		{"foo:", true},
		{"/orders", true},
		{"orders/1?x=/?:@#/?:@", true},
		{"./a:b", true},
		{"?q", true},
		{"#f", true},
		{"//host", true},
		{"//", true},
		{"///path", true},
		{"a%20b%C3%a9", true},
		{"http://[::1]:80/", true},
		{"http://[2001:db8::1.2.3.4]/", true},
		{"http://[v1.a:b]/", true},
		{"http://host:/", true},
		{"1-555-123-4567", true},
		{"(a)*!$&',;=~_.-+", true},
		{"", false},
		{"a b", false},
		{"1abc:foo", false},
		{":foo", false},
		{"a:b:c", true},
		{"https://example.test/%ZZ", false},
		{"a%2", false},
		{"a%", false},
		{"a#b#c", false},
		{"a[b]", false},
		{"http://a b/", false},
		{"http://[::1/", false},
		{"http://[::1]x/", false},
		{"http://[fe80::1%25eth0]/", false},
		{"http://[1.2.3.4]/", false},
		{"http://[v.a]/", false},
		{"http://[vx.a]/", false},
		{"http://[v1.%41]/", false},
		{"http://host:8o/", false},
		{"http://a@b@c/", false},
		{"http://<x>/", false},
		{`a"b`, false},
		{`a\b`, false},
		{"a^b`c{d|e}", false},
		{"é", false},
		{"a\nb", false},
	})
}

func TestURIGrammar(t *testing.T) {
	testGrammar(t, checkURI, []grammarCase{
		{"https://example.test/schema", true},
		{"https://example.test/schema#v1", true},
		{"urn:x", true},
		{"a+b-c.1:x", true},
		{"", false},
		{"/schema", false},
		{"//host/schema", false},
		{"schema", false},
		{"?a:b", false},
		{"1a:x", false},
		{"https://example.test/a b", false},
	})
}

func TestMediaTypeGrammar(t *testing.T) {
	testGrammar(t, checkMediaType, []grammarCase{
		{"application/json", true},
		{"text/plain; charset=utf-8", true},
		{"text/plain;charset=utf-8;format=flowed", true},
		{"text/plain ; charset=\"utf-8\" ; x=\"a \\\" ; b\"", true},
		{"application/vnd.example.v1+json", true},
		{"a/b", true},
		{"A1/!#$&-^_.+", false}, // starts with none of its letters or digits
		{"a/b!#$&-^_.+", true},
		{"a/b;x=!#$%&'*+-.^_`{|}~", true},
		{"a/" + strings.Repeat("b", 127), true},
		{"a/" + strings.Repeat("b", 128), false},
		{"", false},
		{"json", false},
		{"/json", false},
		{"application/", false},
		{"*/*", false},
		{"application/json;", false},
		{"application/json; ", false},
		{"application/json ", false},
		{" application/json", false},
		{"application /json", false},
		{"application/ json", false},
		{"application/json; charset", false},
		{"application/json; charset=", false},
		{"application/json; =utf-8", false},
		{"application/json; charset =utf-8", false},
		{"application/json; charset=utf-8;", false},
		{"application/json; charset=utf-8 x", false},
		{"application/json, text/plain", false},
		{"a/b/c", false},
		{"a/b; x=\"unended", false},
		{"a/b; x=\"unended\\", false},
		{"a/b; x=\"é\"", false},
		{"a/b; x=\"\\é\"", false},
		{"text/plain\r\nNats-Rollup: all", false},
	})
}

func TestJSONMediaTypes(t *testing.T) {
	for s, want := range map[string]bool{
		"application/json": true, "text/JSON": true, "application/json;charset=utf-8": true, "application/json ; a=b": true,
		"application/problem+json": true, "application/a.b+c+json": true, "application/cloudevents+json": true,
		"application/jsonx": false, "application/xjson": false, "application/json-seq": false,
		"application/xml": false, "text/plain; a=application/json": false, "application/json+xml": false,
	} {
		if got := isJSONMediaType(s); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
}

func TestTraceparentGrammar(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "0123456789abcdef"
	testGrammar(t, checkTraceparent, []grammarCase{
		{"00-" + trace + "-" + parent + "-01", true},
		{"00-" + trace + "-" + parent + "-ff", true},
		{"cc-" + trace + "-" + parent + "-01", true},
		{"cc-" + trace + "-" + parent + "-01-what the future holds", true},
		{"", false},
		{"00", false},
		{"ff-" + trace + "-" + parent + "-01", false},
		{"00-" + strings.ToUpper(trace) + "-" + parent + "-01", false},
		{"00-" + trace + "-" + parent + "-0G", false},
		{"0x-" + trace + "-" + parent + "-01", false},
		{"00-00000000000000000000000000000000-" + parent + "-01", false},
		{"00-" + trace + "-0000000000000000-01", false},
		{"00-" + trace + "-" + parent + "-01-", false},
		{"00-" + trace + "-" + parent + "-01-extra", false},
		{"cc-" + trace + "-" + parent + "-01extra", false},
		{"00_" + trace + "-" + parent + "-01", false},
		{"00-" + trace + "_" + parent + "-01", false},
		{"00-" + trace + "-" + parent + "_01", false},
		{"00-" + trace[1:] + "-" + parent + "-01", false},
	})
}

func TestTracestateGrammar(t *testing.T) {
	members := func(n int) string {
		s := make([]string, n)
		for i := range s {
			s[i] = "k" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + "=v"
		}
		return strings.Join(s, ",")
	}
	testGrammar(t, checkTracestate, []grammarCase{
		{"", true},
		{" , ", true},
		{"a=1", true},
		{"vendor=value,other=hello world , x=~!", true},
		{"a_b-c*d/e0=v", true},
		{"1tenant@vendor=v", true},
		{strings.Repeat("k", 256) + "=" + strings.Repeat("v", 256), true},
		{strings.Repeat("t", 241) + "@" + strings.Repeat("s", 14) + "=v", true},
		{members(32), true},
		{members(32) + ",,", true},
		{members(33), false},
		{"a", false},
		{"=v", false},
		{"a=", false},
		{"a=b=c", false},
		{"A=v", false},
		{"1a=v", false},
		{"_a=v", false},
		{"a.b=v", false},
		{"a b=v", false},
		{"a@1s=v", false},
		{"@s=v", false},
		{"a@=v", false},
		{"a@b@c=v", false},
		{"a=é", false},
		{"a=1,a=2", false},
		{"a=\x7f", false},
		{strings.Repeat("k", 257) + "=v", false},
		{"k=" + strings.Repeat("v", 257), false},
		{strings.Repeat("t", 242) + "@s=v", false},
		{"t@" + strings.Repeat("s", 15) + "=v", false},
	})
}
