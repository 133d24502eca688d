package outbox

import (
	"net/netip"
	"strings"
)

// Sets of characters of RFC 3986, appendix A.
const (
	unreserved = "-._~"
	subDelims  = "!$&'()*+,;="
)

var (
	userInfoBytes = byteSet(unreserved + subDelims + ":")
	regNameBytes  = byteSet(unreserved + subDelims)
	pathBytes     = byteSet(unreserved + subDelims + ":@/")
	queryBytes    = byteSet(unreserved + subDelims + ":@/?")
)

// byteSet has letters, digits and the bytes of extra.
func byteSet(extra string) *[256]bool {
	var set [256]bool
	for c := range set {
		set[c] = isAlnum(byte(c)) || containsByte(extra, byte(c))
	}
	return &set
}

// checkURI refuses what is no absolute URI (RFC 3986: it has a scheme; a
// fragment is allowed).
func checkURI(s string) *InvalidEventError {
	if p := checkURIReference(s); p != nil {
		return p
	}
	if _, _, ok := cutScheme(s); !ok {
		return malformed("relative: an absolute URI starts with a scheme")
	}
	return nil
}

// checkURIReference refuses what is no URI-reference (RFC 3986, section 4.1).
// The empty reference is refused, as CloudEvents wants attributes to be non-empty.
func checkURIReference(s string) *InvalidEventError {
	if s == "" {
		return &InvalidEventError{Rule: RuleEmpty}
	}
	if p := checkText(s); p != nil {
		return p
	}
	if !validURIReference(s) {
		return malformed("not a URI-reference (RFC 3986)")
	}
	return nil
}

func validURIReference(s string) bool {
	_, rest, ok := cutScheme(s)
	if !ok {
		// Without a scheme, the first path segment cannot hold a colon.
		if first, _, _ := cutAny(s, "/?#"); strings.IndexByte(first, ':') >= 0 {
			return false
		}
		rest = s
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	if hasFragment && !validEscaped(fragment, queryBytes) || hasQuery && !validEscaped(query, queryBytes) {
		return false
	}
	path := rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		authority, slash, p := cutAny(after, "/")
		if !validAuthority(authority) {
			return false
		}
		path = slash + p
	}
	return validEscaped(path, pathBytes)
}

// cutScheme splits "scheme:rest".
func cutScheme(s string) (scheme, rest string, ok bool) {
	i := strings.IndexByte(s, ':')
	if i <= 0 || !isAlpha(s[0]) || !isTokenName(s[:i], "+-.") {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// cutAny splits s around the first byte that is in any.
func cutAny(s, any string) (before, sep, after string) {
	i := strings.IndexAny(s, any)
	if i < 0 {
		return s, "", ""
	}
	return s[:i], s[i : i+1], s[i+1:]
}

// validAuthority takes [userinfo@]host[:port].
func validAuthority(s string) bool {
	if user, host, ok := strings.Cut(s, "@"); ok {
		if !validEscaped(user, userInfoBytes) {
			return false
		}
		s = host
	}
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 || !validIPLiteral(s[1:end]) {
			return false
		}
		host, port = "", s[end+1:]
		if port != "" && port[0] != ':' {
			return false
		}
		port = strings.TrimPrefix(port, ":")
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, port = s[:i], s[i+1:]
	}
	for i := range len(port) {
		if !isDigit(port[i]) {
			return false
		}
	}
	return validEscaped(host, regNameBytes)
}

// validIPLiteral takes what stands between the brackets of an authority.
func validIPLiteral(s string) bool {
	if s != "" && s[0]|0x20 == 'v' {
		version, address, ok := strings.Cut(s[1:], ".")
		if !ok || version == "" || address == "" || strings.IndexByte(address, '%') >= 0 {
			return false
		}
		for i := range len(version) {
			if !isHex(version[i]) {
				return false
			}
		}
		return validEscaped(address, userInfoBytes)
	}
	ip, err := netip.ParseAddr(s)
	return err == nil && ip.Is6() && ip.Zone() == ""
}

// validEscaped reports whether s is made of allowed bytes and percent-encoded ones.
func validEscaped(s string, allowed *[256]bool) bool {
	for i := 0; i < len(s); i++ {
		if allowed[s[i]] {
			continue
		}
		if s[i] != '%' || i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
			return false
		}
		i += 2
	}
	return true
}
