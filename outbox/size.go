package outbox

import (
	"encoding/base64"
	"strings"
)

// defaultMaxSize is the size limit of an enqueue, in bytes.
const defaultMaxSize = 65_536

// size is an upper bound in bytes of the event on any wire: the larger of the
// structured JSON body and the binary form, which is the data and, for each attribute, the header name, 4
// bytes and three times the value's length (percent-encoding triples a byte at
// worst). JSON data counts as it is given; its structured form is never longer.
func (e *Event) size() int {
	return max(e.structuredSize(), e.binarySize())
}

func (e *Event) binarySize() int {
	n := len(e.Data.bytes)
	add := func(name, value string) {
		if value != "" {
			n += len("ce-") + len(name) + 4 + 3*len(value)
		}
	}
	add("specversion", specVersion)
	add("id", e.ID)
	add("source", e.Source)
	add("type", e.Type)
	add("subject", e.Subject)
	add("time", e.shortTime())
	add("dataschema", e.DataSchema)
	add("partitionkey", e.PartitionKey)
	for name, v := range e.Extensions {
		n += len("ce-") + len(name) + 4 + 3*len(v.text)
	}
	add("datacontenttype", e.ContentType)
	return n
}

func (e *Event) structuredSize() int {
	n := len(`{"specversion":"` + specVersion + `"}`)
	add := func(name, value string) {
		if value != "" {
			n += len(`,"":`) + len(name) + jsonStringLen(value)
		}
	}
	add("id", e.ID)
	add("source", e.Source)
	add("type", e.Type)
	add("subject", e.Subject)
	add("time", e.shortTime())
	add("datacontenttype", e.ContentType)
	add("dataschema", e.DataSchema)
	add("partitionkey", e.PartitionKey)
	for name, v := range e.Extensions {
		n += len(`,"":`) + len(name) + len(v.text)
		if v.typ != TypeBoolean && v.typ != TypeInteger {
			n += jsonStringLen(v.text) - len(v.text)
		}
	}
	switch e.Data.kind {
	case DataJSON:
		n += len(`,"data":`) + len(e.Data.bytes)
	case DataBinary:
		n += len(`,"data_base64":""`) + base64.StdEncoding.EncodedLen(len(e.Data.bytes))
	}
	return n
}

// jsonStringLen is the length of appendJSONString's output for text without control
// characters.
func jsonStringLen(s string) int {
	return len(`""`) + len(s) + strings.Count(s, `"`) + strings.Count(s, `\`)
}

// checkSize refuses an event whose size exceeds limit: an *InvalidEventError for
// field "event" with RuleTooBig. Enqueue applies it, decoding never does.
func (e *Event) checkSize(limit int) error {
	if n := e.size(); n > limit {
		return &InvalidEventError{Field: "event", Rule: RuleTooBig, Limit: limit, Actual: n}
	}
	return nil
}
