package outbox

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf8"
)

// appendCanonicalJSON appends valid JSON src to dst without blanks, the members
// of every object sorted by the bytes of their names, of members with equal
// names the last only, strings with no escape that is not needed, numbers as
// spelled. It is linear but for the sorting, however deep src nests, and dst
// grows by no more than the length of src.
func appendCanonicalJSON(dst, src []byte) []byte {
	c, _ := canonicalizers.Get().(*canonicalizer)
	if c == nil {
		c = new(canonicalizer)
	}
	c.src = src
	c.index(0)
	dst = c.appendValue(dst, 0, len(src), 0)
	c.release()
	return dst
}

// canonicalizers keeps the working memory of small values.
var canonicalizers sync.Pool

// canonicalizer knows, after one pass, the members of every object of src. Its
// slices hold no pointers.
type canonicalizer struct {
	src     []byte
	names   []byte       // of all members, without escapes
	objects []jsonObject // in the order of their opening braces
	members []jsonMember // those of one object stand together
	open    []jsonMember // those of objects that are not closed yet
}

type jsonObject struct {
	first, last int // its part of canonicalizer.members
	end         int // offset after the closing brace
	next        int // number of the first object that opens after end
}

type jsonMember struct {
	name, nameEnd int // in canonicalizer.names
	start, end    int // the value, in src
	object        int // number of the first object that opens at or after start
}

func (c *canonicalizer) release() {
	const keep = 4096
	if cap(c.names) > keep*8 || cap(c.members) > keep || cap(c.objects) > keep {
		return
	}
	*c = canonicalizer{names: c.names[:0], objects: c.objects[:0], members: c.members[:0], open: c.open[:0]}
	canonicalizers.Put(c)
}

// index reads the value at or after i and returns the offset after it.
func (c *canonicalizer) index(i int) int {
	switch i = c.skipSpace(i); c.src[i] {
	case '{':
		return c.indexObject(i)
	case '[':
		if i = c.skipSpace(i + 1); c.src[i] == ']' {
			return i + 1
		}
		for {
			i = c.skipSpace(c.index(i))
			if c.src[i] == ']' {
				return i + 1
			}
			i++
		}
	case '"':
		return c.skipString(i)
	}
	for i < len(c.src) && !isJSONSpace(c.src[i]) && c.src[i] != ',' && c.src[i] != '}' && c.src[i] != ']' {
		i++
	}
	return i
}

func (c *canonicalizer) indexObject(i int) int {
	number, base := len(c.objects), len(c.open)
	c.objects = append(c.objects, jsonObject{})
	i = c.skipSpace(i + 1)
	for c.src[i] != '}' {
		m := jsonMember{name: len(c.names)}
		end := c.skipString(i)
		c.names = appendUnescaped(c.names, c.src[i+1:end-1])
		m.nameEnd = len(c.names)
		m.start = c.skipSpace(c.skipSpace(end) + 1)
		m.object = len(c.objects)
		m.end = c.index(m.start)
		c.open = append(c.open, m)
		if i = c.skipSpace(m.end); c.src[i] == ',' {
			i = c.skipSpace(i + 1)
		}
	}
	first := len(c.members)
	c.members = append(c.members, c.sort(c.open[base:])...)
	c.open = c.open[:base]
	c.objects[number] = jsonObject{first: first, last: len(c.members), end: i + 1, next: len(c.objects)}
	return i + 1
}

// sort sorts members in place and drops all but the last of equal names.
func (c *canonicalizer) sort(members []jsonMember) []jsonMember {
	slices.SortStableFunc(members, func(a, b jsonMember) int { return bytes.Compare(c.name(a), c.name(b)) })
	n := 0
	for i, m := range members {
		if i+1 < len(members) && bytes.Equal(c.name(m), c.name(members[i+1])) {
			continue
		}
		members[n] = m
		n++
	}
	return members[:n]
}

func (c *canonicalizer) name(m jsonMember) []byte { return c.names[m.name:m.nameEnd] }

// appendValue appends the value that src[i:end] holds; object is the number of
// the first object that opens in it.
func (c *canonicalizer) appendValue(dst []byte, i, end, object int) []byte {
	for i < end {
		switch b := c.src[i]; {
		case isJSONSpace(b):
			i++
		case b == '"':
			n := c.skipString(i)
			dst = append(appendReescaped(append(dst, '"'), c.src[i+1:n-1]), '"')
			i = n
		case b == '{':
			o := c.objects[object]
			dst = c.appendObject(dst, o)
			i, object = o.end, o.next
		default:
			dst = append(dst, b)
			i++
		}
	}
	return dst
}

func (c *canonicalizer) appendObject(dst []byte, o jsonObject) []byte {
	dst = append(dst, '{')
	for i := o.first; i < o.last; i++ {
		m := c.members[i]
		if i > o.first {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, c.name(m)), ':')
		dst = c.appendValue(dst, m.start, m.end, m.object)
	}
	return append(dst, '}')
}

func (c *canonicalizer) skipSpace(i int) int {
	for i < len(c.src) && isJSONSpace(c.src[i]) {
		i++
	}
	return i
}

// skipString returns the offset after the string whose opening quote is at i.
func (c *canonicalizer) skipString(i int) int {
	for {
		i = skipPlain(c.src, i+1)
		if c.src[i] == '"' {
			return i + 1
		}
		i++ // the byte after a backslash
	}
}

// appendUnescaped appends the text of s, the inside of a valid string token.
func appendUnescaped(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		r, n := unescapeJSON(s[i:])
		dst = utf8.AppendRune(append(dst, s[:i]...), r)
		s = s[i+n:]
	}
}

// appendReescaped appends s, the inside of a valid string token, with no escape that is not
// needed.
func appendReescaped(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		r, n := unescapeJSON(s[i:])
		dst = append(dst, s[:i]...)
		if r < ' ' || r == '"' || r == '\\' {
			dst = appendJSONEscape(dst, byte(r))
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		s = s[i+n:]
	}
}

// unescapeJSON reads the valid escape sequence at the start of s.
func unescapeJSON(s []byte) (r rune, n int) {
	switch s[1] {
	case 'u':
		r, n, _ = jsonUnicode(s)
		return r, n
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	return rune(s[1]), 2
}

// appendJSONString appends valid UTF-8 text as a JSON string that escapes the
// quote, the backslash and U+0000-001F only.
func appendJSONString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			dst = appendJSONEscape(append(dst, s[start:i]...), c)
			start = i + 1
		}
	}
	return append(append(dst, s[start:]...), '"')
}

// appendJSONEscape appends the shortest escape of a byte that needs one.
func appendJSONEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '\b':
		c = 'b'
	case '\f':
		c = 'f'
	case '\n':
		c = 'n'
	case '\r':
		c = 'r'
	case '\t':
		c = 't'
	case '"', '\\':
	default:
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
	return append(dst, '\\', c)
}
