package outbox

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// appendCanonicalJSON appends valid JSON src to dst without blanks, the members of every object
// sorted by the bytes of their names, the last of members with equal
// names only, strings with no escape that is not needed, numbers as spelled. It is
// linear but for the sorting, however deep src nests.
func appendCanonicalJSON(dst, src []byte) []byte {
	c := canonicalizer{src: src}
	c.index(0)
	return c.appendValue(dst, 0, len(src), 0)
}

// canonicalizer knows, after one pass, the members of every object of src.
type canonicalizer struct {
	src     []byte
	objects []jsonObject // in the order of their opening braces
	members []jsonMember // those of one object stand together
	open    []jsonMember // those of objects that are not closed yet
}

type jsonObject struct {
	members, count int // in canonicalizer.members
	end            int // offset after the closing brace
	next           int // number of the first object that opens after end
}

type jsonMember struct {
	name       []byte // without escapes
	start, end int    // of the value
	object     int    // number of the first object that opens at or after start
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
		var m jsonMember
		end := c.skipString(i)
		m.name = unescapeJSON(c.src[i+1 : end-1])
		m.start = c.skipSpace(c.skipSpace(end) + 1)
		m.object = len(c.objects)
		m.end = c.index(m.start)
		c.open = append(c.open, m)
		if i = c.skipSpace(m.end); c.src[i] == ',' {
			i = c.skipSpace(i + 1)
		}
	}
	first := len(c.members)
	c.members = append(c.members, sortMembers(c.open[base:])...)
	c.open = c.open[:base]
	c.objects[number] = jsonObject{
		members: first, count: len(c.members) - first, end: i + 1, next: len(c.objects),
	}
	return i + 1
}

// sortMembers sorts in place and drops all but the last of equal names.
func sortMembers(m []jsonMember) []jsonMember {
	byName := func(a, b jsonMember) int { return bytes.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(m, byName) {
		slices.SortStableFunc(m, byName)
	}
	n := 0
	for i := range m {
		if i+1 < len(m) && bytes.Equal(m[i].name, m[i+1].name) {
			continue
		}
		m[n] = m[i]
		n++
	}
	return m[:n]
}

// appendValue appends the value that src[i:end] holds; object is the number of
// the first object that opens in it.
func (c *canonicalizer) appendValue(dst []byte, i, end, object int) []byte {
	for i < end {
		switch b := c.src[i]; {
		case isJSONSpace(b):
			i++
		case b == '"':
			n := c.skipString(i)
			dst = appendJSONToken(dst, c.src[i:n])
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
	for i, m := range c.members[o.members : o.members+o.count] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, m.name), ':')
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
	for i++; ; i++ {
		i += plainJSON(c.src[i:])
		if c.src[i] == '"' {
			return i + 1
		}
		i++ // the byte after a backslash
	}
}

// appendJSONToken appends the string token s with the fewest escapes.
func appendJSONToken(dst, s []byte) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return append(dst, s...)
	}
	return appendJSONString(dst, unescapeJSON(s[1:len(s)-1]))
}

// unescapeJSON returns the text of a valid string token's inside; s itself when
// it has no escape.
func unescapeJSON(s []byte) []byte {
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	out := append(make([]byte, 0, len(s)), s[:i]...)
	for i < len(s) {
		if s[i] != '\\' {
			out = append(out, s[i])
			i++
			continue
		}
		if s[i+1] == 'u' {
			r, n, _ := jsonUnicode(s[i:])
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		out = append(out, jsonUnescape(s[i+1]))
		i += 2
	}
	return out
}

// jsonUnescape is the byte that a backslash and c stand for.
func jsonUnescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// appendJSONString appends valid UTF-8 text as a JSON string that escapes the quote, the
// backslash and U+0000-001F only.
func appendJSONString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}
