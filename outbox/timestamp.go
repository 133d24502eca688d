package outbox

import "time"

// storedTimeLen is the length of YYYY-MM-DDTHH:MM:SS.ffffffZ, the stored form of
// every time.
const storedTimeLen = len("2006-01-02T15:04:05.000000Z")

// The bounds of a stored time.
var (
	minTime = time.Unix(0, 0).UTC()
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
)

// formatTime spells t as it is stored: UTC, always six fractional digits, so
// that text order is time order. Anything finer than a microsecond is cut off.
// t must lie within minTime and maxTime.
func formatTime(t time.Time) string {
	var b [storedTimeLen]byte
	return string(appendTime(b[:0], t))
}

func appendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = appendDigits(dst, year, 4)
	dst = appendDigits(append(dst, '-'), int(month), 2)
	dst = appendDigits(append(dst, '-'), day, 2)
	dst = appendDigits(append(dst, 'T'), hour, 2)
	dst = appendDigits(append(dst, ':'), minute, 2)
	dst = appendDigits(append(dst, ':'), second, 2)
	dst = appendDigits(append(dst, '.'), t.Nanosecond()/1000, 6)
	return append(dst, 'Z')
}

// appendShortTime spells t as it is published: the stored form without the
// fraction's trailing zeros, and without a fraction that is zero. Dovecote
// publishes and stores this form.
func appendShortTime(dst []byte, t time.Time) []byte {
	dst = appendTime(dst, t)
	dst = dst[:len(dst)-1]
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	if dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, 'Z')
}

// appendDigits appends the last width decimal digits of n, which is not negative.
func appendDigits(dst []byte, n, width int) []byte {
	start := len(dst)
	for range width {
		dst = append(dst, '0')
	}
	for i := start + width - 1; n > 0 && i >= start; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// parseTime reads a stored time: YYYY-MM-DDTHH:MM:SSZ with no fraction or up to
// six digits of one, from 1970 to 9999. We write six digits; Dovecote leaves
// trailing zeros out where its own code, not SQLite, formats a time.
func parseTime(s string) (time.Time, bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > storedTimeLen || s[len(s)-1] != 'Z' {
		return time.Time{}, false
	}
	t, n, ok := parseSeconds(s)
	if !ok || t.Before(minTime) {
		return time.Time{}, false
	}
	nanos, ok := parseFraction(s[n : len(s)-1])
	if !ok {
		return time.Time{}, false
	}
	return t.Add(time.Duration(nanos)), true
}

// parseRFC3339 reads any RFC 3339 timestamp with upper-case T and Z, which is what
// readers in other languages take. A leap second, which Go's time cannot hold, is
// refused. Digits beyond the ninth do not count.
func parseRFC3339(s string) (time.Time, bool) {
	t, n, ok := parseSeconds(s)
	if !ok {
		return time.Time{}, false
	}
	end := n
	for end < len(s) && (s[end] == '.' || isDigit(s[end])) {
		end++
	}
	nanos, ok := parseFraction(s[n:end])
	if !ok {
		return time.Time{}, false
	}
	offset, ok := parseOffset(s[end:])
	if !ok {
		return time.Time{}, false
	}
	return t.Add(time.Duration(nanos) - offset), true
}

// parseSeconds reads YYYY-MM-DDTHH:MM:SS from the start of s and returns its length.
func parseSeconds(s string) (time.Time, int, bool) {
	const n = len("2006-01-02T15:04:05")
	if len(s) < n || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' {
		return time.Time{}, 0, false
	}
	year, ok1 := digits(s[0:4])
	month, ok2 := digits(s[5:7])
	day, ok3 := digits(s[8:10])
	hour, ok4 := digits(s[11:13])
	minute, ok5 := digits(s[14:16])
	second, ok6 := digits(s[17:19])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, 0, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	// time.Date turns a day that the month does not have into one of another month.
	if t.Month() != time.Month(month) {
		return time.Time{}, 0, false
	}
	return t, n, true
}

// parseFraction reads "" or a point and digits, as nanoseconds.
func parseFraction(s string) (int, bool) {
	if s == "" {
		return 0, true
	}
	if s[0] != '.' || len(s) == 1 {
		return 0, false
	}
	nanos, scale := 0, 100_000_000
	for i := 1; i < len(s); i++ {
		if !isDigit(s[i]) {
			return 0, false
		}
		nanos += int(s[i]-'0') * scale
		scale /= 10
	}
	return nanos, true
}

// parseOffset reads Z or a numeric offset.
func parseOffset(s string) (time.Duration, bool) {
	if s == "Z" {
		return 0, true
	}
	if len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, false
	}
	hours, ok1 := digits(s[1:3])
	minutes, ok2 := digits(s[4:6])
	if !ok1 || !ok2 || hours > 23 || minutes > 59 {
		return 0, false
	}
	d := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if s[0] == '-' {
		d = -d
	}
	return d, true
}

func digits(s string) (int, bool) {
	n := 0
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
