package outbox

import (
	"encoding/json"
	"slices"
	"strings"
)

// appendExtensions appends the stored form of m: compact JSON, names sorted, each value
// {"type":…,"value":…}.
func appendExtensions(dst []byte, m map[string]Value) []byte {
	dst = append(dst, '{')
	for i, name := range sortedNames(m, make([]string, 0, 16)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), name...), '"', ':')
		dst = m[name].appendTagged(dst)
	}
	return append(dst, '}')
}

// sortedNames appends the names of m to buf, sorted.
func sortedNames(m map[string]Value, buf []string) []string {
	for name := range m {
		buf = append(buf, name)
	}
	slices.Sort(buf)
	return buf
}

func (v Value) appendTagged(dst []byte) []byte {
	dst = append(append(dst, `{"type":"`...), v.typ.String()...)
	dst = append(dst, `","value":`...)
	return append(v.appendJSON(dst), '}')
}

// appendJSON appends the value as it stands in stored and structured JSON.
func (v Value) appendJSON(dst []byte) []byte {
	if v.typ == TypeBoolean || v.typ == TypeInteger {
		return append(dst, v.text...)
	}
	return appendJSONString(dst, v.text)
}

// MarshalJSON writes {"type":…,"value":…}, the stored form. The zero Value and a
// text that the type does not have are an *InvalidEventError for field "value".
func (v Value) MarshalJSON() ([]byte, error) {
	if p := v.check(); p != nil {
		return nil, inField("value", p)
	}
	return v.appendTagged(nil), nil
}

// UnmarshalJSON reads {"type":…,"value":…} in any spelling of JSON, with no
// other members. Anything else is an *InvalidEventError for field "value".
func (v *Value) UnmarshalJSON(b []byte) error {
	value, p := parseTagged(b)
	if p != nil {
		return inField("value", p)
	}
	*v = value
	return nil
}

func parseTagged(b []byte) (Value, *InvalidEventError) {
	if p := checkJSON(b); p != nil {
		return Value{}, p
	}
	d := extensionDecoder{s: string(appendCanonicalJSON(nil, b))}
	v, p := d.tagged()
	if p == notStoredForm || p == nil && d.s != "" {
		return Value{}, malformed(`an extension value is {"type":…,"value":…} and nothing else`)
	}
	if p == nil {
		p = v.check()
	}
	return v, p
}

// notStoredForm marks text that is not as appendExtensions writes it. It never leaves
// this file: the error that does says where.
var notStoredForm = &InvalidEventError{Field: "extensions", Rule: RuleFormat}

// decodeExtensions reads the stored form, and nothing but it: a blank, another
// order of the names, a repeated name or an escape that is not needed is an
// error, as it is for Dovecote. Values share memory with s. The error's field is
// "extensions", or names the extension.
func decodeExtensions(s string) (map[string]Value, *InvalidEventError) {
	if s == "{}" {
		return nil, nil
	}
	d := extensionDecoder{s: s}
	m, p := d.object()
	if p == nil {
		p = checkTracePair(m)
	}
	if p == nil {
		return m, nil
	}
	if p == notStoredForm {
		p = malformed("not the stored form from byte %d on: compact JSON with sorted names, "+
			`each {"type":…,"value":…}, nothing escaped but " and \`, len(s)-len(d.s))
		if !json.Valid([]byte(s)) {
			p = malformed("not JSON")
		}
		p.Field = "extensions"
	}
	return nil, p
}

// extensionDecoder takes the stored form off the start of s.
type extensionDecoder struct{ s string }

func (d *extensionDecoder) object() (map[string]Value, *InvalidEventError) {
	if !d.take(`{"`) {
		return nil, notStoredForm
	}
	m := make(map[string]Value, strings.Count(d.s, `":{"type":"`))
	for last := ""; ; {
		name, rest, ok := strings.Cut(d.s, `":`)
		if !ok || len(m) > 0 && name <= last {
			return nil, notStoredForm
		}
		d.s, last = rest, name
		v, p := d.tagged()
		if p == notStoredForm {
			return nil, p
		}
		if p == nil {
			p = checkExtension(name, v)
		}
		if p != nil {
			p.Field = extensionField(name)
			return nil, p
		}
		m[name] = v
		if d.s == "}" {
			return m, nil
		}
		if !d.take(`,"`) {
			return nil, notStoredForm
		}
	}
}

// tagged takes {"type":"T","value":V}. It checks that V is the kind of JSON
// value that T wants, and no more.
func (d *extensionDecoder) tagged() (Value, *InvalidEventError) {
	if !d.take(`{"type":"`) {
		return Value{}, notStoredForm
	}
	name, rest, ok := strings.Cut(d.s, `","value":`)
	if !ok {
		return Value{}, notStoredForm
	}
	t, ok := ParseValueType(name)
	if !ok {
		return Value{}, malformed("unknown type %q", excerpt(name))
	}
	d.s = rest
	var text string
	if quoted := strings.HasPrefix(rest, `"`); quoted == (t == TypeBoolean || t == TypeInteger) {
		return Value{}, malformed("the value's kind of JSON is not that of %s", t)
	} else if quoted {
		text, ok = d.str()
	} else {
		text, ok = d.bare()
	}
	if !ok || !d.take("}") {
		return Value{}, notStoredForm
	}
	return Value{t, text}, nil
}

// bare takes a number or literal, up to the closing brace.
func (d *extensionDecoder) bare() (string, bool) {
	n := strings.IndexByte(d.s, '}')
	if n <= 0 {
		return "", false
	}
	text := d.s[:n]
	d.s = d.s[n:]
	return text, true
}

// str takes a string token. It is a substring of s unless something is escaped.
func (d *extensionDecoder) str() (string, bool) {
	if !d.take(`"`) {
		return "", false
	}
	n := strings.IndexAny(d.s, `"\`)
	if n < 0 {
		return "", false
	}
	if d.s[n] == '"' {
		text := d.s[:n]
		d.s = d.s[n+1:]
		return text, true
	}
	return d.escaped(n)
}

// escaped goes on at the first backslash, which is at n. Only the quote and the
// backslash need an escape: control characters are not allowed anyway.
func (d *extensionDecoder) escaped(n int) (string, bool) {
	out := []byte(d.s[:n])
	for i := n; i < len(d.s); i++ {
		switch c := d.s[i]; c {
		case '"':
			d.s = d.s[i+1:]
			return string(out), true
		case '\\':
			if i++; i == len(d.s) || d.s[i] != '"' && d.s[i] != '\\' {
				return "", false
			}
			out = append(out, d.s[i])
		default:
			out = append(out, c)
		}
	}
	return "", false
}

func (d *extensionDecoder) take(prefix string) bool {
	rest, ok := strings.CutPrefix(d.s, prefix)
	d.s = rest
	return ok
}
