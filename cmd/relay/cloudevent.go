package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outbox-relay/relay/outbox"
)

// fieldError reports what is wrong with one member of a JSON event.
type fieldError struct{ Field, Detail string }

func (e *fieldError) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

func fieldf(field, format string, args ...any) error {
	return &fieldError{field, fmt.Sprintf(format, args...)}
}

// parseStructured reads one CloudEvent in the JSON format. Its data keeps the
// producer's bytes. The event is not validated beyond what JSON can express.
func parseStructured(line []byte, tenant, stream string) (outbox.Event, error) {
	e := outbox.Event{Tenant: tenant, Stream: stream}
	members, err := readObject(line)
	if err != nil {
		return e, err
	}
	var data, encoded json.RawMessage
	seen := map[string]bool{}
	for _, m := range members {
		if m.name == "data" { // null is a JSON value like others
			data = m.value
			continue
		}
		if string(m.value) == "null" {
			continue // the JSON format's other way to leave a member out
		}
		seen[m.name] = true
		if m.name == "data_base64" {
			encoded = m.value
			continue
		}
		if err := setAttribute(&e, m.name, m.value); err != nil {
			return e, err
		}
	}
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if !seen[name] {
			return e, fieldf(name, "is missing")
		}
	}
	return e, setData(&e, data, encoded)
}

// member is one name and value of a JSON object, as written.
type member struct {
	name  string
	value json.RawMessage
}

// readObject splits one JSON object into its members, in order. A name that
// comes twice is an error.
func readObject(text []byte) ([]member, error) {
	if !utf8.Valid(text) {
		return nil, fieldf("", "is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fieldf("", "is no JSON object%s", because(err))
	}
	var members []member
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, fieldf("", "is not valid JSON%s", because(err))
		}
		m := member{name: t.(string)} // the decoder accepts nothing else here
		if seen[m.name] {
			return nil, fieldf(m.name, "is there twice")
		}
		seen[m.name] = true
		if err := dec.Decode(&m.value); err != nil {
			return nil, fieldf(m.name, "is not valid JSON%s", because(err))
		}
		members = append(members, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fieldf("", "is not valid JSON%s", because(err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fieldf("", "has more after the JSON object; write one object a line")
	}
	return members, nil
}

func because(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ": it ends too early"
	}
	return ": " + err.Error()
}

// setAttribute sets a context attribute or an extension.
func setAttribute(e *outbox.Event, name string, value json.RawMessage) error {
	if name == "specversion" {
		if s, err := jsonString(name, value); err != nil || s != "1.0" {
			return fieldf(name, `must be "1.0"`)
		}
		return nil
	}
	field := map[string]*string{
		"id": &e.ID, "source": &e.Source, "type": &e.Type, "subject": &e.Subject,
		"datacontenttype": &e.ContentType, "dataschema": &e.DataSchema, "partitionkey": &e.PartitionKey,
	}[name]
	if field == nil && name != "time" {
		return setExtension(e, name, value)
	}
	s, err := jsonString(name, value)
	if err != nil {
		return err
	}
	if s == "" {
		return fieldf(name, "is empty; leave it out instead")
	}
	if name == "time" {
		return setTime(e, s)
	}
	*field = s
	return nil
}

// setTime reads RFC 3339. Microseconds are the outbox's precision.
func setTime(e *outbox.Event, s string) error {
	_, fraction, _ := strings.Cut(s, ".")
	digits := len(fraction) - len(strings.TrimLeft(fraction, "0123456789"))
	if digits > 9 && strings.Trim(fraction[9:digits], "0") != "" {
		return fieldf("time", "%q is finer than a microsecond", s)
	}
	t, ok := outbox.Timestamp(s).Time()
	if !ok {
		return fieldf("time", "%q is no RFC 3339 time", s)
	}
	e.Time = t
	return nil
}

func setExtension(e *outbox.Event, name string, value json.RawMessage) error {
	var v outbox.Value
	switch c := value[0]; {
	case c == '"':
		s, err := jsonString(name, value)
		if err != nil {
			return err
		}
		v = outbox.String(s)
	case c == 't' || c == 'f':
		v = outbox.Bool(c == 't')
	case c == '-' || c >= '0' && c <= '9':
		n, err := strconv.ParseInt(string(value), 10, 32)
		if err != nil {
			return fieldf(name, "%s is no integer of 32 bits", value)
		}
		v = outbox.Int(int32(n))
	default:
		return fieldf(name, "must be a string, a boolean or an integer")
	}
	if e.Extensions == nil {
		e.Extensions = map[string]outbox.Value{}
	}
	e.Extensions[name] = v
	return nil
}

// setData chooses the kind of data from what the envelope says.
func setData(e *outbox.Event, data, encoded json.RawMessage) error {
	switch {
	case data != nil && encoded != nil:
		return fieldf("data", "is there together with data_base64")
	case encoded != nil:
		raw, err := jsonBase64("data_base64", encoded)
		e.Data = outbox.Binary(raw)
		return err
	case data == nil:
		return nil
	}
	if e.ContentType == "" {
		e.ContentType = "application/json"
	}
	if isJSONType(e.ContentType) {
		e.Data = outbox.JSON(data)
		return nil
	}
	if data[0] != '"' {
		return fieldf("data", "must be a string under the media type %q; data_base64 takes binary data", e.ContentType)
	}
	s, err := jsonString("data", data)
	e.Data = outbox.Binary([]byte(s))
	return err
}

// isJSONType tells whether a media type is */json or *+json.
func isJSONType(mediaType string) bool {
	essence, _, _ := strings.Cut(mediaType, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	return strings.HasSuffix(essence, "/json") || strings.HasSuffix(essence, "+json")
}

// jsonString decodes a JSON string. Half a surrogate pair, which the standard
// decoder replaces, is an error.
func jsonString(field string, value json.RawMessage) (string, error) {
	if value[0] != '"' {
		return "", fieldf(field, "must be a string")
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return "", fieldf(field, "is not valid JSON%s", because(err))
	}
	if loneSurrogate(string(value)) {
		return "", fieldf(field, "holds half of a surrogate pair")
	}
	return s, nil
}

// loneSurrogate looks for \uD800..\uDFFF escapes that are no pair in valid JSON.
func loneSurrogate(s string) bool {
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return false
		}
		s = s[i+1:]
		if s[0] != 'u' {
			s = s[1:]
			continue
		}
		first := escapedUnit(s)
		s = s[5:]
		switch {
		case first < 0xd800 || first > 0xdfff:
		case first > 0xdbff || len(s) < 6 || s[0] != '\\' || s[1] != 'u':
			return true
		default:
			if second := escapedUnit(s[1:]); second < 0xdc00 || second > 0xdfff {
				return true
			}
			s = s[6:]
		}
	}
}

// escapedUnit is the value of uXXXX.
func escapedUnit(s string) uint64 {
	n, err := strconv.ParseUint(s[1:5], 16, 16)
	if err != nil {
		return 0 // not in valid JSON
	}
	return n
}

func jsonBase64(field string, value json.RawMessage) ([]byte, error) {
	s, err := jsonString(field, value)
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || strings.ContainsAny(s, "\r\n") {
		return nil, fieldf(field, "is no padded base64")
	}
	return raw, nil
}
