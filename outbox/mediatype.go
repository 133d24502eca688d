package outbox

import "strings"

// nameExtra are the bytes of a type or subtype name besides letters and
// digits (RFC 6838, section 4.2), tokenExtra those of a parameter (RFC 2045).
const (
	nameExtra  = "!#$&-^_.+"
	tokenExtra = "!#$%&'*+-.^_`{|}~"
)

// checkMediaType refuses what is no media type of 1..255 bytes: type "/"
// subtype, then parameters with token or quoted values.
func checkMediaType(s string) *InvalidEventError {
	if p := checkBounded(s, maxContentType); p != nil {
		return p
	}
	if !validMediaType(s) {
		return malformed("not a media type (RFC 2045, RFC 6838)")
	}
	return nil
}

func validMediaType(s string) bool {
	essence, params, ok := strings.Cut(s, ";")
	typ, subtype, _ := strings.Cut(strings.TrimRight(essence, " "), "/")
	if !validTypeName(typ) || !validTypeName(subtype) || strings.HasSuffix(s, " ") {
		return false
	}
	for ok {
		if params, ok = cutParameter(params); !ok {
			return false
		}
		if params == "" {
			return true
		}
		// What follows a parameter is a semicolon and another one.
		if params[0] != ';' {
			return false
		}
		params = params[1:]
	}
	return true
}

func validTypeName(s string) bool {
	const limit = 127
	return len(s) <= limit && isTokenName(s, nameExtra)
}

// cutParameter takes one parameter and the blanks around it off the start of s.
func cutParameter(s string) (rest string, ok bool) {
	s = strings.TrimLeft(s, " ")
	n := tokenLen(s)
	if n == 0 || n == len(s) || s[n] != '=' {
		return "", false
	}
	s = s[n+1:]
	if s != "" && s[0] == '"' {
		n = quotedLen(s)
	} else {
		n = tokenLen(s)
	}
	if n == 0 {
		return "", false
	}
	return strings.TrimLeft(s[n:], " "), true
}

func tokenLen(s string) int {
	n := 0
	for n < len(s) && (isAlnum(s[n]) || containsByte(tokenExtra, s[n])) {
		n++
	}
	return n
}

// quotedLen is the length of the quoted string that s starts with, 0 if it is none.
func quotedLen(s string) int {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c >= 0x80:
			return 0
		case c == '\\':
			if i++; i < len(s) && s[i] >= 0x80 {
				return 0
			}
		}
	}
	return 0
}

// isJSONMediaType reports whether a valid media type is */json or *+json.
func isJSONMediaType(s string) bool {
	if s == "application/json" {
		return true
	}
	essence, _, _ := strings.Cut(s, ";")
	_, subtype, _ := strings.Cut(strings.TrimRight(essence, " "), "/")
	if i := strings.LastIndexByte(subtype, '+'); i >= 0 {
		subtype = subtype[i+1:]
	}
	return strings.EqualFold(subtype, "json")
}
