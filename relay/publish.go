package relay

import (
	"context"
	"errors"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// Message is one claimed event, addressed.
type Message struct {
	Row          int64
	Subject      string
	ExpectStream string // "" where the route names none
	ID           string // message id
	Event        *outbox.Event
}

// Class is what a result means for the row, the route and the connection.
type Class uint8

const (
	Accepted    Class = iota + 1
	Rejected          // this message can never be stored: quarantine
	Failed            // retry with backoff; counts towards max_attempts
	Blocked           // this route cannot be stored now: pause it
	Unavailable       // the broker cannot be used now: open the breaker
)

var classNames = [...]string{"unknown", "accepted", "rejected", "failed", "blocked", "unavailable"}

// String is the class as metrics and logs name it.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[0]
}

// Result is the outcome of one publish.
type Result struct {
	Row       int64
	Class     Class
	Code      Code
	Detail    string    // for a person; no secrets
	Duplicate bool      // Accepted: the broker had it already
	Sent      bool      // false: known not to have left
	At        time.Time // when the answer came; zero: when the loop reads it
}

// Publisher is what the loop needs of a broker.
type Publisher interface {
	// Publish starts sending m and returns at once. The result arrives on done
	// exactly once, within the publish timeout. An error means that nothing
	// was sent and nothing will arrive; it opens the breaker. The publisher must not
	// keep m.Event after it returned. done has room for every message in flight.
	Publish(ctx context.Context, m *Message, done chan<- Result) error
	// Flush pushes what Publish has buffered to the wire.
	Flush() error
	// Usable is nil while the connection stands. It costs nothing. Its errors, and
	// those of Publish and Probe, may be a [CodedError].
	Usable() error
	// Probe asks the broker whether it can be published to at all.
	Probe(ctx context.Context) error
}

// CodedError is an error that has a code of class [Unavailable].
type CodedError interface {
	error
	ResultCode() Code
}

// codeOf is the code of an error of a publisher.
func codeOf(err error) Code {
	var coded CodedError
	if errors.As(err, &coded) {
		return coded.ResultCode()
	}
	return CodeUnavailable
}
