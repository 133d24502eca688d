package outbox

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

// Value is a typed extension value. Construct it with [Bool], [Int],
// [String], [Bytes], [URI], [URIReference] or [Timestamp]; the zero Value is
// invalid.
type Value struct {
	typ  ValueType
	text string // canonical text form; base64 for binary
}
