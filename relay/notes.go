package relay

import (
	"time"

	"github.com/rs/zerolog"
)

// noteKind is a kind of event that can happen to many rows.
type noteKind uint8

const (
	noteQuarantined noteKind = iota
	noteFailed
	noteUnrouted
	noteLostClaim
)

// noteTexts has the log message of each kind, and how many rows of one code are
// named one by one in a period before the rest are only counted.
var noteTexts = [...]struct {
	one, many string
	burst     int
}{
	noteQuarantined: {"row quarantined", "more rows quarantined", 5},
	noteFailed:      {"publish failed; it is tried again", "more publishes failed", 1},
	noteUnrouted:    {"no route for row", "more rows without a route", 1},
	noteLostClaim:   {"claim lost; row dropped", "more claims lost", 1},
}

// notePeriod is how often rows that were only counted are summed up.
const notePeriod = time.Minute

// notes keeps the log short when the same thing happens to many rows: the first
// ones are named, the others summed up once a period. It is bounded by the
// number of codes.
type notes struct {
	log  zerolog.Logger
	seen map[noteKey]*noteCount
}

type noteKey struct {
	kind noteKind
	code Code
}

type noteCount struct {
	began   time.Time
	named   int
	counted int
	lastRow int64
	detail  string
}

func newNotes(log zerolog.Logger) notes {
	return notes{log: log, seen: make(map[noteKey]*noteCount)}
}

// note records one occurrence.
func (n *notes) note(now time.Time, kind noteKind, code Code, row int64, detail string) {
	k := noteKey{kind, code}
	c := n.seen[k]
	if c == nil {
		c = &noteCount{began: now}
		n.seen[k] = c
	}
	if c.named < noteTexts[kind].burst {
		c.named++
		n.log.Warn().Str("code", string(code)).Int64("row", row).Str("detail", detail).Msg(noteTexts[kind].one)
		return
	}
	c.counted++
	c.lastRow, c.detail = row, detail
}

// flush sums up what was only counted.
func (n *notes) flush(now time.Time) {
	for k, c := range n.seen {
		if now.Sub(c.began) < notePeriod {
			continue
		}
		if c.counted == 0 {
			delete(n.seen, k)
			continue
		}
		n.log.Warn().Str("code", string(k.code)).Int("rows", c.counted).Int64("last_row", c.lastRow).
			Str("detail", c.detail).Msg(noteTexts[k.kind].many)
		c.began, c.counted = now, 0
	}
}
