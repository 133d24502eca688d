package outbox

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// ValueType is one of the seven CloudEvents attribute types.
type ValueType uint8

const (
	TypeBoolean ValueType = iota + 1
	TypeInteger
	TypeString
	TypeBinary
	TypeURI
	TypeURIReference
	TypeTimestamp
)

// typeNames are the stored names, by type.
var typeNames = [...]string{
	TypeBoolean: "boolean", TypeInteger: "integer", TypeString: "string", TypeBinary: "binary",
	TypeURI: "uri", TypeURIReference: "uri-reference", TypeTimestamp: "timestamp",
}

// String is the type's stored name: boolean, integer, string, binary, uri,
// uri-reference or timestamp. It is empty for anything else.
func (t ValueType) String() string {
	if int(t) >= len(typeNames) {
		return ""
	}
	return typeNames[t]
}

// ParseValueType finds a type by its stored name.
func ParseValueType(name string) (ValueType, bool) {
	for t, n := range typeNames {
		if n == name && n != "" {
			return ValueType(t), true
		}
	}
	return 0, false
}

// Value is a typed extension value. Construct it with [Bool], [Int],
// [String], [Bytes], [URI], [URIReference], [Timestamp] or [TimestampOf]; the zero Value is
// invalid. A constructor takes anything: [Event.Validate] checks the text.
// Values compare with ==.
type Value struct {
	typ  ValueType
	text string // canonical text form; base64 for binary
}

// Bool is a boolean value.
func Bool(b bool) Value { return Value{TypeBoolean, strconv.FormatBool(b)} }

// Int is an integer value.
func Int(i int32) Value { return Value{TypeInteger, strconv.Itoa(int(i))} }

// String is a string value, which may be empty. Control characters,
// noncharacters and invalid UTF-8 are refused when the event is validated.
func String(s string) Value { return Value{TypeString, s} }

// Bytes is a binary value, which may be empty. b is copied.
func Bytes(b []byte) Value { return Value{TypeBinary, base64.StdEncoding.EncodeToString(b)} }

// URI is an absolute URI (RFC 3986).
func URI(s string) Value { return Value{TypeURI, s} }

// URIReference is a URI-reference (RFC 3986), not empty.
func URIReference(s string) Value { return Value{TypeURIReference, s} }

// Timestamp is an RFC 3339 timestamp, which keeps its spelling. T and Z are upper
// case, the second is at most 59.
func Timestamp(s string) Value { return Value{TypeTimestamp, s} }

// TimestampOf is t in UTC, to the nanosecond, without trailing zeros. Years
// beyond 0..9999 are refused when the event is validated.
func TimestampOf(t time.Time) Value { return Timestamp(t.UTC().Format(time.RFC3339Nano)) }

// ParseValue makes a value of a type and its text form, as [Value.Text]
// returns it. A text that the type does not have is an *InvalidEventError for
// field "value".
func ParseValue(t ValueType, text string) (Value, error) {
	v := Value{t, text}
	if p := v.check(); p != nil {
		return Value{}, inField("value", p)
	}
	return v, nil
}

// Type is the value's type, 0 for the zero Value.
func (v Value) Type() ValueType { return v.typ }

// Text is the CloudEvents string form: true or false, decimal digits, the text
// itself, padded base64.
func (v Value) Text() string { return v.text }

// Bool returns a boolean; ok is false for other types.
func (v Value) Bool() (b, ok bool) { return v.text == "true", v.typ == TypeBoolean }

// Int returns an integer; ok is false for other types.
func (v Value) Int() (i int32, ok bool) {
	n, err := strconv.ParseInt(v.text, 10, 32)
	return int32(n), v.typ == TypeInteger && err == nil
}

// Bytes returns a copy of a binary value; ok is false for other types.
func (v Value) Bytes() (b []byte, ok bool) {
	b, err := base64.StdEncoding.DecodeString(v.text)
	return b, v.typ == TypeBinary && err == nil
}

// Time returns a timestamp in UTC, cut to the nanosecond; ok is false for other
// types and for a text that is no timestamp.
func (v Value) Time() (t time.Time, ok bool) {
	t, ok = parseRFC3339(v.text)
	return t, v.typ == TypeTimestamp && ok
}

// check verifies the text against the type. The error has no field.
func (v Value) check() *InvalidEventError {
	ok := true
	switch v.typ {
	case TypeBoolean:
		ok = v.text == "true" || v.text == "false"
	case TypeInteger:
		ok = isInt32(v.text)
	case TypeString:
		return checkText(v.text)
	case TypeBinary:
		ok = isBase64(v.text)
	case TypeURI:
		return checkURI(v.text)
	case TypeURIReference:
		return checkURIReference(v.text)
	case TypeTimestamp:
		_, ok = parseRFC3339(v.text)
	default:
		return &InvalidEventError{Rule: RuleEmpty, Detail: "the zero Value; use a constructor"}
	}
	if !ok {
		return malformed("%q is no %s", excerpt(v.text), v.typ)
	}
	return nil
}

// isInt32 takes the shortest decimal form only.
func isInt32(s string) bool {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return false
	}
	var b [11]byte
	return string(strconv.AppendInt(b[:0], n, 10)) == s
}

// isBase64 takes padded base64 whose unused bits are zero.
func isBase64(s string) bool {
	if len(s)%4 != 0 {
		return false
	}
	body := strings.TrimRight(s, "=")
	pad := len(s) - len(body)
	if pad > 2 {
		return false
	}
	last := 0
	for i := range len(body) {
		if last = base64Value(body[i]); last < 0 {
			return false
		}
	}
	// One padding sign leaves two unused bits in the last character, two leave four.
	return last&(1<<(2*pad)-1) == 0
}

// base64Value is the six bits that c stands for, -1 if it stands for none.
func base64Value(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case isDigit(c):
		return int(c-'0') + 52
	case c == '+':
		return 62
	case c == '/':
		return 63
	}
	return -1
}

// maxExtensionName bounds the name of an extension, in bytes.
const maxExtensionName = 20

// checkExtensionName refuses what is no extension name. The error has no field.
func checkExtensionName(name string) *InvalidEventError {
	if name == "" {
		return &InvalidEventError{Rule: RuleEmpty, Limit: maxExtensionName}
	}
	if len(name) > maxExtensionName {
		return &InvalidEventError{Rule: RuleTooLong, Limit: maxExtensionName, Actual: len(name)}
	}
	for i := range len(name) {
		if !isDigit(name[i]) && !isLower(name[i]) {
			return malformed("a name is made of a-z and 0-9")
		}
	}
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data":
		return malformed("the name is that of a core attribute")
	case "partitionkey":
		return malformed("the partition key is Event.PartitionKey, no extension")
	}
	return nil
}

// checkExtension checks a name with its value, and the grammar of the trace
// context extensions. The error has its field.
func checkExtension(name string, v Value) *InvalidEventError {
	p := checkExtensionName(name)
	if p == nil {
		p = v.check()
	}
	if p == nil && (name == "traceparent" || name == "tracestate") {
		switch {
		case v.typ != TypeString:
			p = malformed("%s is a string, not %s", name, v.typ)
		case name == "traceparent":
			p = checkTraceparent(v.text)
		default:
			p = checkTracestate(v.text)
		}
	}
	if p != nil {
		p.Field = extensionField(name)
	}
	return p
}

// checkExtensions reports the first broken rule in the order of the names.
func checkExtensions(m map[string]Value) *InvalidEventError {
	var first *InvalidEventError
	firstName := ""
	for name, v := range m {
		if first != nil && name > firstName {
			continue
		}
		if p := checkExtension(name, v); p != nil {
			first, firstName = p, name
		}
	}
	if first == nil && len(m) > 0 {
		return checkTracePair(m)
	}
	return first
}

// checkTracePair refuses a tracestate without its traceparent.
func checkTracePair(m map[string]Value) *InvalidEventError {
	if _, ok := m["tracestate"]; !ok {
		return nil
	}
	if _, ok := m["traceparent"]; ok {
		return nil
	}
	return &InvalidEventError{
		Field: extensionField("tracestate"), Rule: RuleMissing, Detail: "tracestate needs a traceparent",
	}
}

// extensionField names an extension in an error. A name that no extension can
// have is quoted and cut.
func extensionField(name string) string {
	for i := range len(name) {
		if !isAlnum(name[i]) {
			return "extensions." + strconv.Quote(excerpt(name))
		}
	}
	return "extensions." + excerpt(name)
}
