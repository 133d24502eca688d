package outbox

// Attribute is a CloudEvents attribute in binary mode, name without prefix,
// value percent-encoded as the NATS protocol binding demands.
type Attribute struct{ Name, Value string }

// MessageID is the deterministic message id: lowercase hex SHA-256 over tenant,
// source and id, each preceded by its length as an unsigned 64-bit big-endian
// count.
func (e *Event) MessageID() string { panic("todo") }

// IsolatedMessageID leaves the tenant out, for a destination that one tenant
// owns.
func (e *Event) IsolatedMessageID() string { panic("todo") }

// AppendAttributes appends the binary mode attributes to dst in the documented
// order: specversion, id, source, type, subject, time, dataschema,
// partitionkey, extensions by name, datacontenttype.
func (e *Event) AppendAttributes(dst []Attribute) []Attribute { panic("todo") }

// AppendStructured appends the deterministic JSON envelope to dst.
func (e *Event) AppendStructured(dst []byte) ([]byte, error) { panic("todo") }
