package outbox

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of JSON data. It is one less than what Go's
// encoding/json reads, since the structured envelope adds a level.
const maxJSONDepth = 9_999

// checkJSON refuses what is not exactly one JSON value (RFC 8259) in UTF-8,
// without lone surrogate escapes, nested at most maxJSONDepth deep. Numbers may
// have any size and precision, names may repeat.
func checkJSON(b []byte) *InvalidEventError {
	if len(b) == 0 {
		return &InvalidEventError{Rule: RuleEmpty, Detail: "JSON data is one value, not nothing"}
	}
	if !utf8.Valid(b) {
		return malformed("not UTF-8")
	}
	s := jsonChecker{b: b}
	if s.value() {
		return nil
	}
	return malformed("not exactly one JSON value: %s at byte %d", s.why, s.i)
}

// jsonChecker walks JSON text without recursion, so that no input can exhaust the
// stack. Its methods report false with why set, and i where.
type jsonChecker struct {
	b     []byte
	i     int
	depth int
	// inObject has a bit for each open level: 1 object, 0 array.
	inObject [maxJSONDepth/64 + 1]uint64
	why      string
}

func (s *jsonChecker) fail(why string) bool {
	s.why = why
	return false
}

// value checks the whole text.
func (s *jsonChecker) value() bool {
	for {
		ended, ok := s.start()
		if !ok {
			return false
		}
		if ended && !s.after() {
			return false
		}
		if s.depth == 0 {
			break
		}
	}
	s.space()
	if s.i < len(s.b) {
		return s.fail("more text")
	}
	return true
}

// start takes a scalar, an empty container (both end a value), or the opening of
// a container up to its first value.
func (s *jsonChecker) start() (ended, ok bool) {
	switch c := s.space(); c {
	case '{':
		if !s.open(true) {
			return false, false
		}
		if s.space() == '}' {
			return true, s.close()
		}
		return false, s.name()
	case '[':
		if !s.open(false) {
			return false, false
		}
		if s.space() == ']' {
			return true, s.close()
		}
		return false, true
	case '"':
		return true, s.str()
	case 't':
		return true, s.literal("true")
	case 'f':
		return true, s.literal("false")
	case 'n':
		return true, s.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return true, s.number()
		}
		return false, s.fail("no value")
	}
}

// after takes what follows a finished value inside containers: closings, then
// the comma (and name) before the next value.
func (s *jsonChecker) after() bool {
	for s.depth > 0 {
		object := s.isObject()
		switch c := s.space(); {
		case c == ',':
			s.i++
			if object {
				s.space()
				return s.name()
			}
			return true
		case object && c == '}' || !object && c == ']':
			s.close()
		case object:
			return s.fail("no comma or closing brace")
		default:
			return s.fail("no comma or closing bracket")
		}
	}
	return true
}

func (s *jsonChecker) open(object bool) bool {
	if s.depth == maxJSONDepth {
		return s.fail("nested too deep")
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	if object {
		s.inObject[word] |= bit
	} else {
		s.inObject[word] &^= bit
	}
	s.depth++
	s.i++
	return true
}

func (s *jsonChecker) close() bool {
	s.depth--
	s.i++
	return true
}

func (s *jsonChecker) isObject() bool {
	top := s.depth - 1
	return s.inObject[top/64]>>(top%64)&1 == 1
}

// name takes a member's name and the colon.
func (s *jsonChecker) name() bool {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return s.fail("no name")
	}
	if !s.str() {
		return false
	}
	if s.space() != ':' {
		return s.fail("no colon")
	}
	s.i++
	return true
}

// space skips blanks and returns the byte that follows, 0 at the end.
func (s *jsonChecker) space() byte {
	i, b := s.i, s.b
	for i < len(b) && isJSONSpace(b[i]) {
		i++
	}
	s.i = i
	if i == len(b) {
		return 0
	}
	return b[i]
}

func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func (s *jsonChecker) literal(word string) bool {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return s.fail("no value")
	}
	s.i += len(word)
	return true
}

func (s *jsonChecker) number() bool {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return false
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return true
}

func (s *jsonChecker) digits() bool {
	start := s.i
	for s.i < len(s.b) && isDigit(s.b[s.i]) {
		s.i++
	}
	if s.i == start {
		return s.fail("no digit")
	}
	return true
}

// str takes a string, the opening quote being at i.
func (s *jsonChecker) str() bool {
	for i := s.i + 1; ; {
		i = skipPlain(s.b, i)
		if i >= len(s.b) {
			s.i = len(s.b)
			return s.fail("unended string")
		}
		switch s.b[i] {
		case '"':
			s.i = i + 1
			return true
		case '\\':
			n, ok := jsonEscapeLen(s.b[i:])
			if !ok {
				s.i = i
				return s.fail("bad escape (a lone surrogate is one)")
			}
			i += n
		default:
			s.i = i
			return s.fail("unescaped control character")
		}
	}
}

// skipPlain returns the offset at or after i of the first quote, backslash or control
// character of b, or its length. It looks at eight bytes at a time: the classic
// trick finds a zero byte in x as the lowest high bit of (x-ones)&^x&highs.
func skipPlain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i <= len(b)-8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		hit := ((x - ones*' ') &^ x) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if hit &= highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// jsonEscapeLen is the length of the escape sequence that b starts with; a pair of
// surrogates is one sequence.
func jsonEscapeLen(b []byte) (int, bool) {
	if len(b) < 2 {
		return 0, false
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, true
	case 'u':
		_, n, ok := jsonUnicode(b)
		return n, ok
	}
	return 0, false
}

// jsonUnicode reads \uXXXX, or two of them that make a surrogate pair.
func jsonUnicode(b []byte) (r rune, n int, ok bool) {
	hi, ok := hex4(b)
	if !ok {
		return 0, 0, false
	}
	if hi < 0xD800 || hi > 0xDFFF {
		return hi, 6, true
	}
	lo, ok := hex4(b[6:])
	if !ok || hi > 0xDBFF || lo < 0xDC00 || lo > 0xDFFF {
		return 0, 0, false
	}
	return (hi-0xD800)<<10 + (lo - 0xDC00) + 0x10000, 12, true
}

// hex4 reads \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case isHex(c):
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
