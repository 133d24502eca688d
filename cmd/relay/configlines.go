package main

import (
	"fmt"
	"strings"
)

// keyLines has the line on which each key and table of a TOML document is
// written. An element of an array of tables is named with its index:
// "route[0].subject".
type keyLines map[string]int

// at is the line of key, or of the nearest table around it; 0: neither is in
// the document.
func (k keyLines) at(key string) int {
	for key != "" {
		if line, ok := k[key]; ok {
			return line
		}
		if i := strings.LastIndexAny(key, ".["); i >= 0 {
			key = key[:i]
		} else {
			key = ""
		}
	}
	return 0
}

// scanKeys finds the lines. The document must have passed a TOML parser: the
// parser says what a key means and this scanner only where it stands (the
// parser keeps one position for all tables of an array). Keys inside an inline
// table get the line of their statement.
func scanKeys(doc string) keyLines {
	s := keyScanner{doc: doc, line: 1, found: keyLines{}, arrays: map[string]int{}}
	for s.blank(); s.pos < len(s.doc); s.blank() {
		if s.peek() == '[' {
			s.header()
		} else {
			s.record(s.table, s.key('='))
			s.value()
		}
	}
	return s.found
}

type keyScanner struct {
	doc    string
	pos    int
	line   int
	table  string
	arrays map[string]int // array of tables -> elements so far
	found  keyLines
}

func (s *keyScanner) peek() byte {
	if s.pos >= len(s.doc) {
		return 0
	}
	return s.doc[s.pos]
}

func (s *keyScanner) next() byte {
	c := s.peek()
	s.pos++
	if c == '\n' {
		s.line++
	}
	return c
}

// blank skips white space, line ends and comments.
func (s *keyScanner) blank() {
	for s.pos < len(s.doc) {
		switch s.peek() {
		case ' ', '\t', '\r', '\n':
			s.next()
		case '#':
			s.comment()
		default:
			return
		}
	}
}

func (s *keyScanner) comment() {
	for s.pos < len(s.doc) && s.peek() != '\n' {
		s.next()
	}
}

// header reads [table] or [[array]].
func (s *keyScanner) header() {
	s.next()
	array := s.peek() == '['
	if array {
		s.next()
	}
	parts := s.key(']')
	if array && s.peek() == ']' {
		s.next()
	}
	s.table = ""
	if !array {
		s.table = s.record("", parts)
		return
	}
	name := s.record("", parts[:len(parts)-1])
	name = joinKey(name, parts[len(parts)-1])
	n := s.arrays[name]
	s.arrays[name] = n + 1
	s.table = fmt.Sprintf("%s[%d]", name, n)
	s.note(name)
	s.note(s.table)
}

// record notes the line of a dotted key below table, and of the tables that it
// implies, and returns its full name.
func (s *keyScanner) record(table string, parts []string) string {
	name := table
	for _, p := range parts {
		name = joinKey(name, p)
		if n := s.arrays[name]; n > 0 {
			name = fmt.Sprintf("%s[%d]", name, n-1)
		}
		s.note(name)
	}
	return name
}

func (s *keyScanner) note(name string) {
	if _, ok := s.found[name]; !ok {
		s.found[name] = s.line
	}
}

func joinKey(table, name string) string {
	if table == "" {
		return name
	}
	return table + "." + name
}

// key reads a dotted key and the byte that ends it.
func (s *keyScanner) key(end byte) []string {
	var parts []string
	var part strings.Builder
	for s.pos < len(s.doc) {
		switch c := s.next(); c {
		case ' ', '\t':
		case '"', '\'':
			for s.pos < len(s.doc) && s.peek() != c {
				if c == '"' && s.peek() == '\\' {
					part.WriteByte(s.next())
				}
				part.WriteByte(s.next())
			}
			s.next()
		case '.':
			parts = append(parts, part.String())
			part.Reset()
		case end:
			return append(parts, part.String())
		default:
			part.WriteByte(c)
		}
	}
	return append(parts, part.String())
}

// value skips a value up to the end of its statement.
func (s *keyScanner) value() {
	depth := 0
	for s.pos < len(s.doc) {
		switch c := s.peek(); c {
		case '"', '\'':
			s.text(c)
		case '#':
			s.comment()
		case '[', '{':
			depth++
			s.next()
		case ']', '}':
			depth--
			s.next()
		case '\n':
			s.next()
			if depth == 0 {
				return
			}
		default:
			s.next()
		}
	}
}

// text skips a string of any of the four kinds.
func (s *keyScanner) text(quote byte) {
	end := string(quote)
	if triple := strings.Repeat(end, 3); strings.HasPrefix(s.doc[s.pos:], triple) {
		end = triple
	}
	for range end {
		s.next()
	}
	for s.pos < len(s.doc) && !strings.HasPrefix(s.doc[s.pos:], end) {
		if quote == '"' && s.peek() == '\\' {
			s.next()
		}
		s.next()
	}
	for range end {
		s.next()
	}
	for len(end) == 3 && s.peek() == quote { // """…"""" ends in a quote of its own
		s.next()
	}
}
