package outbox

import (
	"fmt"
	"unicode/utf8"
)

// checkText refuses what CloudEvents forbids in every string: control
// characters (U+0000-001F, U+007F-009F), noncharacters, and bytes that are not
// UTF-8 (surrogates among them). Nil means that s is fine; the caller names the
// field.
func checkText(s string) *InvalidEventError {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf {
			return checkRunes(s, i)
		}
		if c < ' ' || c == 0x7f {
			return malformed("control character U+%04X at byte %d", c, i)
		}
	}
	return nil
}

// checkRunes goes on where the first byte beyond ASCII stands.
func checkRunes(s string, i int) *InvalidEventError {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			return malformed("invalid UTF-8 at byte %d", i)
		case r < ' ' || 0x7f <= r && r <= 0x9f:
			return malformed("control character U+%04X at byte %d", r, i)
		case r&0xFFFE == 0xFFFE || 0xFDD0 <= r && r <= 0xFDEF:
			return malformed("noncharacter U+%04X at byte %d", r, i)
		}
		i += n
	}
	return nil
}

// checkBounded is checkText for a string of 1..limit bytes.
func checkBounded(s string, limit int) *InvalidEventError {
	if s == "" {
		return &InvalidEventError{Rule: RuleEmpty, Limit: limit}
	}
	if len(s) > limit {
		return &InvalidEventError{Rule: RuleTooLong, Limit: limit, Actual: len(s)}
	}
	return checkText(s)
}

// malformed is a broken RuleFormat, without its field.
func malformed(format string, args ...any) *InvalidEventError {
	return &InvalidEventError{Rule: RuleFormat, Detail: fmt.Sprintf(format, args...)}
}

// isTokenName reports whether s is made of letters, digits and the bytes of
// extra, and starts with a letter or digit.
func isTokenName(s, extra string) bool {
	if s == "" || !isAlnum(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if !isAlnum(s[i]) && !containsByte(extra, s[i]) {
			return false
		}
	}
	return true
}

func containsByte(s string, c byte) bool {
	for i := range len(s) {
		if s[i] == c {
			return true
		}
	}
	return false
}

func isAlnum(c byte) bool { return isDigit(c) || isAlpha(c) }

func isAlpha(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
