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

// JSON is data that must be exactly one valid UTF-8 JSON value. The bytes are
// stored and published as given. The slice is not copied: do not change it
// until the event has been enqueued.
func JSON(raw []byte) Data { return Data{kind: DataJSON, bytes: raw} }

// Binary is data that is never parsed. Binary(nil) is present and empty.
// The slice is not copied.
func Binary(raw []byte) Data { return Data{kind: DataBinary, bytes: raw} }

// Kind tells whether data is absent, JSON or binary.
func (d Data) Kind() DataKind { return d.kind }

// Bytes are the exact payload bytes; empty for absent and for empty data. Not
// a copy.
func (d Data) Bytes() []byte { return d.bytes }

// Validate checks every rule of the event model except the size limit, which is
// the enqueue's. The error is an *InvalidEventError for the first broken rule.
func (e *Event) Validate() error { panic("todo") }
