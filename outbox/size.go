package outbox

// defaultMaxSize is the size limit of an enqueue, in bytes.
const defaultMaxSize = 65_536

// size is the upper bound of the event's size on any wire, in bytes.
func (e *Event) size() int { panic("todo") }

// checkSize refuses an event whose size exceeds limit: an *InvalidEventError for
// field "event" with RuleTooBig. Enqueue applies it, decoding never does.
func (e *Event) checkSize(limit int) error { panic("todo") }
