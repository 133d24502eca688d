package outbox

import "time"

// Event is a CloudEvents 1.0 event with the two routing fields of the outbox.
// The zero value of an optional field means that the attribute is absent.
// Lengths are in UTF-8 bytes. [Event.Validate] has every rule.
type Event struct {
	Tenant       string // required, 1..255; storage metadata, never a CloudEvents attribute
	Stream       string // required, 1..255, [A-Za-z0-9][A-Za-z0-9._-]*; routing metadata, never an attribute
	ID           string // required, 1..1024; len(Source)+len(ID) <= 2048
	Source       string // required URI-reference, 1..2048
	Type         string // required, 1..1024
	Subject      string // optional, 1..2048
	Time         time.Time
	ContentType  string // optional media type, <= 255; required when Data is non-empty
	DataSchema   string // optional absolute URI, 1..2048
	PartitionKey string // optional, 1..255; projected as the partitionkey extension
	Extensions   map[string]Value
	Data         Data
}

// DataKind tells how data is projected. The zero value is absent data.
type DataKind uint8

const (
	DataAbsent DataKind = iota
	DataJSON
	DataBinary
)

// Data is an event's payload: absent (the zero value), JSON, or binary.
// Absent and present-but-empty are different.
type Data struct {
	kind  DataKind
	bytes []byte
}

// JSON is data that must be exactly one JSON value in UTF-8, with no lone
// surrogate escapes, nested at most 9,999 deep. Numbers may have any size, names
// may repeat. The bytes are stored, and published in binary mode, as given. The slice is
// not copied: do not change it until the event has been enqueued.
func JSON(raw []byte) Data { return Data{kind: DataJSON, bytes: raw} }

// Binary is data that is never parsed. Binary(nil) is present and empty.
// The slice is not copied.
func Binary(raw []byte) Data { return Data{kind: DataBinary, bytes: raw} }

// Kind tells whether data is absent, JSON or binary.
func (d Data) Kind() DataKind { return d.kind }

// Bytes are the exact payload bytes; empty for absent and for empty data. Not
// a copy.
func (d Data) Bytes() []byte { return d.bytes }

// Bounds of the event model, in UTF-8 bytes.
const (
	maxTenant       = 255
	maxStream       = 255
	maxID           = 1024
	maxSource       = 2048
	maxIdentity     = 2048 // source and id together
	maxType         = 1024
	maxSubject      = 2048
	maxContentType  = 255
	maxDataSchema   = 2048
	maxPartitionKey = 255
)

// Validate checks every rule of the event model except the size limit, which is
// the enqueue's: bounds, characters, grammars, exact time, JSON data. The
// error is an *InvalidEventError for the first broken rule: required fields come
// first, then the time and the optional fields, then extensions by name, then data.
func (e *Event) Validate() error {
	if p := e.validate(); p != nil {
		return p
	}
	return nil
}

func (e *Event) validate() *InvalidEventError {
	required := [...]textField{
		{"tenant", e.Tenant, checkTenant},
		{"stream", e.Stream, checkStream},
		{"id", e.ID, checkID},
		{"source", e.Source, checkSource},
		{"type", e.Type, checkType},
	}
	for _, f := range required {
		if p := f.check(f.text); p != nil {
			return inField(f.name, p)
		}
	}
	if p := checkIdentity(e.Source, e.ID); p != nil {
		return inField("id", p)
	}
	if p := checkTime(e.Time); p != nil {
		return inField("time", p)
	}
	optional := [...]textField{
		{"subject", e.Subject, checkSubject},
		{"datacontenttype", e.ContentType, checkMediaType},
		{"dataschema", e.DataSchema, checkDataSchema},
		{"partitionkey", e.PartitionKey, checkPartitionKey},
	}
	for _, f := range optional {
		if f.text == "" {
			continue
		}
		if p := f.check(f.text); p != nil {
			return inField(f.name, p)
		}
	}
	if p := checkExtensions(e.Extensions); p != nil {
		return p
	}
	return checkData(e.Data, e.ContentType)
}

// textField is an attribute with its check, which does not know the field's name.
type textField struct {
	name, text string
	check      func(string) *InvalidEventError
}

func inField(name string, p *InvalidEventError) *InvalidEventError {
	p.Field = name
	return p
}

func checkTenant(s string) *InvalidEventError       { return checkBounded(s, maxTenant) }
func checkID(s string) *InvalidEventError           { return checkBounded(s, maxID) }
func checkType(s string) *InvalidEventError         { return checkBounded(s, maxType) }
func checkSubject(s string) *InvalidEventError      { return checkBounded(s, maxSubject) }
func checkPartitionKey(s string) *InvalidEventError { return checkBounded(s, maxPartitionKey) }

func checkStream(s string) *InvalidEventError {
	if p := checkBounded(s, maxStream); p != nil {
		return p
	}
	if !isTokenName(s, "._-") {
		return malformed("a stream is made of letters, digits, dots, underscores and hyphens, and starts with a letter or digit")
	}
	return nil
}

func checkSource(s string) *InvalidEventError {
	if p := checkBounded(s, maxSource); p != nil {
		return p
	}
	return checkURIReference(s)
}

func checkDataSchema(s string) *InvalidEventError {
	if p := checkBounded(s, maxDataSchema); p != nil {
		return p
	}
	return checkURI(s)
}

// checkIdentity bounds source and id together.
func checkIdentity(source, id string) *InvalidEventError {
	if n := len(source) + len(id); n > maxIdentity {
		return &InvalidEventError{Rule: RuleTooLong, Limit: maxIdentity, Actual: n, Detail: "source and id together"}
	}
	return nil
}

// checkTime takes the zero time for an absent one.
func checkTime(t time.Time) *InvalidEventError {
	switch {
	case t.IsZero():
		return nil
	case t.Before(minTime) || t.After(maxTime):
		return &InvalidEventError{Rule: RuleRange, Detail: "a time lies between 1970-01-01T00:00:00Z and 9999-12-31T23:59:59.999999Z"}
	case t.Nanosecond()%1000 != 0:
		return malformed("finer than a microsecond; use Time.Truncate")
	}
	return nil
}

// checkData checks the payload against its kind and media type, which has been
// checked or is empty.
func checkData(d Data, contentType string) *InvalidEventError {
	if contentType == "" && (len(d.bytes) > 0 || d.kind == DataJSON) {
		return inField("datacontenttype", &InvalidEventError{Rule: RuleMissing, Detail: "data needs a media type"})
	}
	if d.kind != DataJSON {
		return nil
	}
	if !isJSONMediaType(contentType) {
		return inField("datacontenttype", malformed("JSON data needs a media type that is */json or *+json"))
	}
	if p := checkJSON(d.bytes); p != nil {
		return inField("data", p)
	}
	return nil
}
