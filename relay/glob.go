package relay

import (
	"strings"
	"unicode/utf8"
)

// glob is a compiled pattern: * stands for any run of characters, also none,
// and ? for exactly one character. Nothing escapes them.
type glob struct {
	kind globKind
	text string // the literal, the prefix, or the whole pattern
}

type globKind uint8

const (
	globAny globKind = iota
	globLiteral
	globPrefix
	globGeneral
)

func compileGlob(pattern string) glob {
	switch at := strings.IndexAny(pattern, "*?"); {
	case pattern == "" || strings.Trim(pattern, "*") == "":
		return glob{kind: globAny}
	case at < 0:
		return glob{kind: globLiteral, text: pattern}
	case at == len(pattern)-1 && pattern[at] == '*':
		return glob{kind: globPrefix, text: pattern[:at]}
	}
	return glob{kind: globGeneral, text: pattern}
}

func (g glob) match(s string) bool {
	switch g.kind {
	case globAny:
		return true
	case globLiteral:
		return s == g.text
	case globPrefix:
		return strings.HasPrefix(s, g.text)
	}
	return matchGeneral(g.text, s)
}

// matchGeneral goes back only to the last *, so that its cost is bounded by
// len(pattern) * len(s).
func matchGeneral(pattern, s string) bool {
	p, i := 0, 0
	star, retry := -1, 0
	for i < len(s) {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, i
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			i += size
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			_, size = utf8.DecodeRuneInString(s[retry:])
			retry += size
			p, i = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
