package outbox

import "strings"

// checkTraceparent refuses what the W3C Trace Context grammar does: lower-case
// hex, version ff, an all-zero trace or parent id. A version later than 00 may
// carry more fields after the four that are known.
func checkTraceparent(s string) *InvalidEventError {
	const known = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < known || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return malformed("traceparent is not version-traceid-parentid-flags")
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:known]
	switch {
	case !isLowerHex(version) || !isLowerHex(trace) || !isLowerHex(parent) || !isLowerHex(flags):
		return malformed("traceparent is not lower-case hex")
	case version == "ff":
		return malformed("traceparent version ff is forbidden")
	case len(s) > known && (version == "00" || s[known] != '-'):
		return malformed("traceparent has more than its four fields")
	case strings.Trim(trace, "0") == "":
		return malformed("traceparent has an all-zero trace id")
	case strings.Trim(parent, "0") == "":
		return malformed("traceparent has an all-zero parent id")
	}
	return nil
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// maxTraceMembers bounds the list members of a tracestate.
const maxTraceMembers = 32

// checkTracestate refuses what is no list of up to 32 key=value members with keys
// that differ. Empty members are allowed.
func checkTracestate(s string) *InvalidEventError {
	var keys [maxTraceMembers]string
	n := 0
	for s != "" {
		var member string
		member, s, _ = strings.Cut(s, ",")
		member = strings.Trim(member, " ")
		if member == "" {
			continue
		}
		key, value, ok := strings.Cut(member, "=")
		switch {
		case n == maxTraceMembers:
			return malformed("tracestate has more than %d members", maxTraceMembers)
		case !ok || !validTraceKey(key):
			return malformed("tracestate key %q is not allowed", excerpt(key))
		case !validTraceValue(value):
			return malformed("tracestate value of %q is not allowed", excerpt(key))
		}
		for _, k := range keys[:n] {
			if k == key {
				return malformed("tracestate key %q occurs twice", excerpt(key))
			}
		}
		keys[n] = key
		n++
	}
	return nil
}

// validTraceKey takes a simple key, or tenant@system.
func validTraceKey(key string) bool {
	tenant, system, multi := strings.Cut(key, "@")
	if !multi {
		return len(key) <= 256 && key != "" && isLower(key[0]) && isTraceName(key)
	}
	return tenant != "" && len(tenant) <= 241 && (isLower(tenant[0]) || isDigit(tenant[0])) && isTraceName(tenant) &&
		system != "" && len(system) <= 14 && isLower(system[0]) && isTraceName(system)
}

func isTraceName(s string) bool {
	for i := range len(s) {
		if !isLower(s[i]) && !isDigit(s[i]) && !containsByte("_-*/", s[i]) {
			return false
		}
	}
	return true
}

// validTraceValue takes 1..256 printable ASCII bytes without comma and equals
// sign. Outer blanks have been taken off.
func validTraceValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '=' {
			return false
		}
	}
	return s != "" && len(s) <= 256
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

// excerpt shortens s for an error message.
func excerpt(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
