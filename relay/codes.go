package relay

// Code is what goes into last_failure_code, quarantine reasons and metrics.
type Code string

// Codes of results, by class. A publisher uses these and no others, because
// the class of the code that a row carries from its last attempt decides
// whether attempts count ([Code.Class]).
const (
	CodeTooLarge        Code = "too_large"         // over max_payload or max_msg_size
	CodeInvalidSubject  Code = "invalid_subject"   // the rendered subject cannot be published to
	CodeHeadersTooLarge Code = "headers_too_large" // over the limit for headers
	CodeUndecodable     Code = "undecodable"       // the stored row is no event

	CodePublishTimeout Code = "publish_timeout" // no answer although the connection answers pings
	CodeInProcess      Code = "in_process"      // an earlier publish of the same event is still unanswered
	CodeNotReady       Code = "not_ready"       // the subject's stream could not be looked up yet
	CodeFailed         Code = "failed"          // any other answer that blames neither route nor broker

	CodeNoStream         Code = "no_stream"         // no stream takes the subject
	CodeInvalidAck       Code = "invalid_ack"       // the answer is no PubAck
	CodePermissionDenied Code = "permission_denied" // no permission to publish to the subject
	CodeStreamFull       Code = "stream_full"       // full, and it discards what is new
	CodeSealed           Code = "sealed"            // the stream takes no more messages
	CodeWrongStream      Code = "wrong_stream"      // another stream than the route's stored it

	CodeDisconnected    Code = "disconnected"       // no connection
	CodeUnresponsive    Code = "unresponsive"       // pings are unanswered
	CodeCredentials     Code = "credentials"        // the server refuses the credentials
	CodeJetStreamOff    Code = "jetstream_off"      // JetStream is not enabled
	CodeNoQuorum        Code = "no_quorum"          // JetStream has no leader
	CodeNoResources     Code = "no_resources"       // JetStream is out of memory or storage
	CodeUnavailable     Code = "unavailable"        // any other reason why nothing can be published
	CodeUnanswered      Code = "unanswered"         // sent, then the broker became unavailable
	CodeAmbiguousOnStop Code = "ambiguous_shutdown" // sent, unanswered when the relay stopped
)

// Codes that the loop itself records.
const (
	CodeAttemptsExhausted Code = "attempts_exhausted" // quarantine: max_attempts and failed twice running
	CodeCrashLoop         Code = "crash_loop"         // quarantine: every worker that took it died or hung
	CodeLeaseExpired      Code = "lease_expired"      // retry: reclaimed too often after an outage
	CodeUnrouted          Code = "unrouted"           // no route matches the event
)

var codeClasses = map[Code]Class{
	CodeTooLarge:        Rejected,
	CodeInvalidSubject:  Rejected,
	CodeHeadersTooLarge: Rejected,
	CodeUndecodable:     Rejected,

	CodePublishTimeout: Failed,
	CodeInProcess:      Failed,
	CodeNotReady:       Failed,
	CodeFailed:         Failed,

	CodeNoStream:         Blocked,
	CodeInvalidAck:       Blocked,
	CodePermissionDenied: Blocked,
	CodeStreamFull:       Blocked,
	CodeSealed:           Blocked,
	CodeWrongStream:      Blocked,

	CodeDisconnected:    Unavailable,
	CodeUnresponsive:    Unavailable,
	CodeCredentials:     Unavailable,
	CodeJetStreamOff:    Unavailable,
	CodeNoQuorum:        Unavailable,
	CodeNoResources:     Unavailable,
	CodeUnavailable:     Unavailable,
	CodeUnanswered:      Unavailable,
	CodeAmbiguousOnStop: Unavailable,
}

// Class is the class of a result's code; 0 for a code that no result has, such
// as [CodeUnrouted] or one that another worker or a person recorded.
func (c Code) Class() Class { return codeClasses[c] }
