package outbox

import (
	"fmt"
	"time"
)

// stampLayout is the form of every timestamp in the database: UTC, six digits
// of fraction, so that text order is time order.
const stampLayout = "2006-01-02T15:04:05.000000Z"

// formatStamp renders t in the database's form, cut to microseconds.
func formatStamp(t time.Time) string { return t.UTC().Format(stampLayout) }

// parseStamp reads the database's form and no other.
func parseStamp(s string) (time.Time, error) {
	if len(s) != len(stampLayout) {
		return time.Time{}, fmt.Errorf("%q is not of the form YYYY-MM-DDTHH:MM:SS.ffffffZ", clip(s, 64))
	}
	t, err := time.Parse(stampLayout, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not of the form YYYY-MM-DDTHH:MM:SS.ffffffZ", s)
	}
	return t, nil
}

// clip cuts s to at most n bytes at a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}
