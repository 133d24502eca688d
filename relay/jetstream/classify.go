package jetstream

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-relay/relay/relay"
)

// errorRules say what JetStream's error codes mean for a publish. A code that
// is not here is relay.CodeFailed with the server's own text: nothing is known
// against the message, the route or the broker.
//
// What no answer says is judged elsewhere, with the same codes: refusals by
// the client before anything is sent in [Publisher.Publish], timeouts in
// health, permissions in denials, no responders in doubt, a broken
// connection in link.
var errorRules = map[jetstream.ErrorCode]relay.Code{
	10054: relay.CodeTooLarge,        // message size exceeds the stream's max_msg_size
	10097: relay.CodeHeadersTooLarge, // headers over 64 KiB

	10060: relay.CodeWrongStream, // Nats-Expected-Stream names another
	10109: relay.CodeSealed,
	10169: relay.CodeWrongStream, // a stream of counters, which takes nothing else
	10002: relay.CodeStreamFull,  // the account's limit, which the stream shares
	10120: relay.CodeStreamFull,  // the account has no limits for this tier
	10167: relay.CodeStreamFull,  // too many requests: its queue of inbound messages

	10158: relay.CodeInProcess, // duplicate of a message that is being stored
	10163: relay.CodeNotReady,  // check of the subject's last sequence
	10063: relay.CodeNotReady,  // replica behind its log

	10035: relay.CodeJetStreamOff, // account not found
	10039: relay.CodeJetStreamOff, // not enabled for the account
	10076: relay.CodeJetStreamOff, // not enabled

	10004: relay.CodeNoQuorum, // incomplete results
	10006: relay.CodeNoQuorum, // not in clustered mode
	10007: relay.CodeNoQuorum, // cluster not assigned to this server
	10008: relay.CodeNoQuorum, // temporarily unavailable
	10009: relay.CodeNoQuorum, // not the leader
	10010: relay.CodeNoQuorum, // clustering support required
	10118: relay.CodeNoQuorum, // stream is offline
	10194: relay.CodeNoQuorum, // stream is offline, with the reason

	10023: relay.CodeNoResources, // the server's memory or storage is used up
	10028: relay.CodeNoResources, // memory
	10047: relay.CodeNoResources, // storage

}

// storeFailed is the one code for everything that keeps a stream's store from
// taking a message; its description tells what. Order matters: the first that
// occurs in the description counts.
const storeFailed jetstream.ErrorCode = 10077

var storeFailedRules = []struct {
	description string
	code        relay.Code
}{
	{"message too large", relay.CodeTooLarge}, // for the store's format
	// One subject of the stream is full: other subjects of the route are not,
	// so the route must not wait for it.
	{"maximum messages per subject exceeded", relay.CodeFailed},
	{"maximum messages exceeded", relay.CodeStreamFull},
	{"maximum bytes exceeded", relay.CodeStreamFull},
	{"insufficient", relay.CodeNoResources},
	{"store is closed", relay.CodeUnavailable}, // the server is going down
}

func codeOf(err *jetstream.APIError) relay.Code {
	if err.ErrorCode == storeFailed {
		for _, r := range storeFailedRules {
			if strings.Contains(err.Description, r.description) {
				return r.code
			}
		}
	}
	if code, ok := errorRules[err.ErrorCode]; ok {
		return code
	}
	return relay.CodeFailed
}

// settle turns an answer into the result of its flight.
func (p *Publisher) settle(f *flight, a answer) relay.Result {
	var r relay.Result
	switch {
	case a.kind == answerError:
		code := codeOf(a.err)
		r = f.result(code, refusalText(code, f, a, p.streams.named(string(a.stream))))
	case f.expect != "" && string(a.stream) != f.expect:
		r = f.result(relay.CodeWrongStream,
			fmt.Sprintf("stored by stream %s, but the route expects %s", a.stream, f.expect))
	default:
		r = relay.Result{Row: f.row, Class: relay.Accepted, Duplicate: a.duplicate}
	}
	r.Sent, r.At = true, time.Now()
	return r
}

// refusalText gives the server's words and the figures behind them.
func refusalText(code relay.Code, f *flight, a answer, s *jetstream.StreamInfo) string {
	text := fmt.Sprintf("%s (stream %s, error %d)", a.err.Description, a.stream, a.err.ErrorCode)
	switch code {
	case relay.CodeTooLarge:
		text += fmt.Sprintf(": payload %d + headers %d bytes", f.payload, f.headers)
		if s != nil && s.Config.MaxMsgSize > 0 {
			text += fmt.Sprintf(", max_msg_size %d", s.Config.MaxMsgSize)
		}
	case relay.CodeHeadersTooLarge:
		text += fmt.Sprintf(": headers %d bytes", f.headers)
	case relay.CodeWrongStream:
		if f.expect != "" {
			text += ": the route expects " + f.expect
		}
	}
	return text
}

// noStreamText is for a message that nobody listens for.
func noStreamText(f *flight, s *jetstream.StreamInfo) string {
	text := "no stream takes subject " + f.subject
	if s != nil {
		text = fmt.Sprintf("nobody answers on subject %s: stream %s has just been removed or has no leader", f.subject, s.Config.Name)
	}
	if f.expect != "" {
		text += "; the route expects stream " + f.expect
	}
	return text
}
