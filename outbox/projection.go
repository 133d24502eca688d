package outbox

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// Attribute is a CloudEvents attribute in binary mode, name without prefix,
// value percent-encoded as the NATS protocol binding demands.
type Attribute struct{ Name, Value string }

// MessageID is the deterministic message id: lowercase hex SHA-256 over tenant,
// source and id, each preceded by its length as an unsigned 64-bit big-endian
// count.
func (e *Event) MessageID() string { return hashParts(e.Tenant, e.Source, e.ID) }

// IsolatedMessageID leaves the tenant out, for a destination that one tenant
// owns.
func (e *Event) IsolatedMessageID() string { return hashParts(e.Source, e.ID) }

func hashParts(parts ...string) string {
	var space [512]byte
	b := space[:0]
	for _, p := range parts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(p))), p...)
	}
	sum := sha256.Sum256(b)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// AppendAttributes appends the binary mode attributes to dst in the documented
// order: specversion, id, source, type, subject, time, dataschema,
// partitionkey, extensions by name, datacontenttype.
func (e *Event) AppendAttributes(dst []Attribute) []Attribute {
	dst = append(dst,
		Attribute{"specversion", specVersion},
		Attribute{"id", PercentEncode(e.ID)},
		Attribute{"source", PercentEncode(e.Source)},
		Attribute{"type", PercentEncode(e.Type)})
	dst = appendAttribute(dst, "subject", e.Subject)
	dst = appendAttribute(dst, "time", e.shortTime())
	dst = appendAttribute(dst, "dataschema", e.DataSchema)
	dst = appendAttribute(dst, "partitionkey", e.PartitionKey)
	if len(e.Extensions) > 0 {
		for _, name := range sortedNames(e.Extensions, make([]string, 0, 16)) {
			dst = append(dst, Attribute{name, PercentEncode(e.Extensions[name].text)})
		}
	}
	return appendAttribute(dst, "datacontenttype", e.ContentType)
}

// shortTime is the time as it is published, "" when it is absent.
func (e *Event) shortTime() string {
	if e.Time.IsZero() {
		return ""
	}
	var b [storedTimeLen]byte
	return string(appendShortTime(b[:0], e.Time))
}

func appendAttribute(dst []Attribute, name, value string) []Attribute {
	if value == "" {
		return dst
	}
	return append(dst, Attribute{name, PercentEncode(value)})
}

// PercentEncode encodes a header value as the CloudEvents bindings demand: the space, the
// quote, the percent sign and every byte outside U+0021-007E as %XX, in upper-case hex.
// It returns s itself when there is nothing to encode.
func PercentEncode(s string) string {
	n := 0
	for i := range len(s) {
		if mustEncode(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const upperHex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; mustEncode(c) {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

func mustEncode(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

// AppendStructured appends the deterministic JSON envelope to dst: specversion, id,
// source, type, subject, time, datacontenttype, dataschema, partitionkey,
// extensions by name, then data (JSON: members sorted by the bytes of their
// names, of duplicate names the last, numbers as spelled) or data_base64. Absent
// data has no member. JSON data that is not valid JSON is an *InvalidEventError,
// and dst comes back as it was.
func (e *Event) AppendStructured(dst []byte) ([]byte, error) {
	if e.Data.kind == DataJSON {
		if p := checkJSON(e.Data.bytes); p != nil {
			return dst, inField("data", p)
		}
	}
	dst = e.appendEnvelope(dst)
	switch e.Data.kind {
	case DataJSON:
		dst = append(dst, `,"data":`...)
		dst = appendCanonicalJSON(dst, e.Data.bytes)
	case DataBinary:
		dst = append(dst, `,"data_base64":"`...)
		dst = append(base64.StdEncoding.AppendEncode(dst, e.Data.bytes), '"')
	}
	return append(dst, '}'), nil
}

// appendEnvelope appends everything but the data and the closing brace.
func (e *Event) appendEnvelope(dst []byte) []byte {
	dst = append(dst, `{"specversion":"`+specVersion+`"`...)
	dst = appendMember(dst, "id", e.ID)
	dst = appendMember(dst, "source", e.Source)
	dst = appendMember(dst, "type", e.Type)
	dst = appendMember(dst, "subject", e.Subject)
	dst = appendMember(dst, "time", e.shortTime())
	dst = appendMember(dst, "datacontenttype", e.ContentType)
	dst = appendMember(dst, "dataschema", e.DataSchema)
	dst = appendMember(dst, "partitionkey", e.PartitionKey)
	if len(e.Extensions) > 0 {
		for _, name := range sortedNames(e.Extensions, make([]string, 0, 16)) {
			dst = append(append(append(dst, ',', '"'), name...), '"', ':')
			dst = e.Extensions[name].appendJSON(dst)
		}
	}
	return dst
}

// appendMember appends a string member, none for an empty value.
func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(append(append(dst, ',', '"'), name...), '"', ':')
	return appendJSONString(dst, value)
}
