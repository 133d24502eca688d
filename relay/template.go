package relay

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-relay/relay/outbox"
)

// template is a parsed subject template.
type template []segment

type segment struct {
	literal string // for fieldNone
	field   field
}

type field uint8

const (
	fieldNone field = iota
	fieldTenant
	fieldStream
	fieldType
	fieldPartitionKey
	fieldSubject
)

var fieldsByName = map[string]field{
	"tenant":       fieldTenant,
	"stream":       fieldStream,
	"type":         fieldType,
	"partitionkey": fieldPartitionKey,
	"subject":      fieldSubject,
}

// keepsDots tells the fields whose value may span several tokens.
func (f field) keepsDots() bool { return f == fieldStream || f == fieldType }

// of is the field's value in e.
func (f field) of(e *outbox.Event) string {
	switch f {
	case fieldTenant:
		return e.Tenant
	case fieldStream:
		return e.Stream
	case fieldType:
		return e.Type
	case fieldPartitionKey:
		return e.PartitionKey
	}
	return e.Subject
}

// parseTemplate splits text; the second result is what is wrong with it.
func parseTemplate(text string) (template, string) {
	var t template
	for rest := text; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			return append(t, segment{literal: rest}), ""
		}
		if rest[open] == '}' {
			return nil, fmt.Sprintf("%q has a } without its {", text)
		}
		end := strings.IndexAny(rest[open+1:], "{}")
		if end < 0 || rest[open+1+end] == '{' {
			return nil, fmt.Sprintf("%q has a { without its }", text)
		}
		name := rest[open+1 : open+1+end]
		f, ok := fieldsByName[name]
		if !ok {
			return nil, fmt.Sprintf("unknown placeholder {%s}: use {tenant} {stream} {type} {partitionkey} {subject}", name)
		}
		if open > 0 {
			t = append(t, segment{literal: rest[:open]})
		}
		t = append(t, segment{field: f})
		rest = rest[open+1+end+1:]
	}
	return t, ""
}

// fault says why every subject of the template would be invalid; "" if some
// can be valid. A value is taken to be one harmless byte, unless the route's
// own patterns leave no choice.
func (t template) fault(stream, tenant glob) string {
	if len(t) == 0 {
		return "is empty: give the subject to publish to"
	}
	e := outbox.Event{Tenant: "x", Stream: "x", Type: "x", PartitionKey: "x", Subject: "x"}
	if stream.kind == globLiteral {
		e.Stream = stream.text
	}
	if tenant.kind == globLiteral {
		e.Tenant = tenant.text
	}
	for _, s := range t {
		if detail := literalFault(s.literal); detail != "" {
			return detail
		}
	}
	sample := t.render(nil, &e)
	if detail := subjectFault(sample); detail != "" {
		return fmt.Sprintf("can only give invalid subjects such as %q: %s", shorten(string(sample), maxSubject), detail)
	}
	return ""
}

func literalFault(s string) string {
	switch {
	case !utf8.ValidString(s):
		return "holds bytes that are not UTF-8"
	case strings.ContainsAny(s, "*>"):
		return fmt.Sprintf("can only give invalid subjects: %q holds a wildcard", s)
	case strings.ContainsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }):
		return fmt.Sprintf("can only give invalid subjects: %q holds a blank or a control character", s)
	}
	return ""
}

// render appends the subject of e.
func (t template) render(b []byte, e *outbox.Event) []byte {
	for _, s := range t {
		if s.field == fieldNone {
			b = append(b, s.literal...)
			continue
		}
		if v := s.field.of(e); v != "" {
			b = appendEncoded(b, v, s.field.keepsDots())
		} else {
			b = append(b, '_')
		}
	}
	return b
}

// pattern is the wildcard subject that covers the template's subjects, given
// the patterns that the event's stream and tenant have matched.
func (t template) pattern(stream, tenant glob) string {
	var token []byte // of the token so far; wild once it holds a value
	var out []byte
	wild := false
	endToken := func() {
		if wild {
			token = append(token[:0], '*')
		}
		out = append(out, token...)
		token, wild = token[:0], false
	}
	literal := func(s string) {
		for _, c := range []byte(s) {
			if c != '.' {
				token = append(token, c)
				continue
			}
			endToken()
			out = append(out, '.')
		}
	}
	for _, s := range t {
		switch {
		case s.field == fieldNone:
			literal(s.literal)
		case s.field == fieldStream && stream.kind == globLiteral:
			literal(stream.text)
		case s.field == fieldTenant && tenant.kind == globLiteral:
			token = appendEncoded(token, tenant.text, false)
		case s.field.keepsDots():
			return string(append(out, '>'))
		default:
			wild = true
		}
	}
	endToken()
	return string(out)
}

// subjectBytes are the bytes that a value keeps in a subject.
var subjectBytes = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") {
		set[c] = true
	}
	return set
}()

func isSubjectByte(c byte) bool { return subjectBytes[c] }

// appendEncoded appends s with every other byte as %XX.
func appendEncoded(b []byte, s string, keepDots bool) []byte {
	const hex = "0123456789ABCDEF"
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if subjectBytes[c] || c == '.' && keepDots {
			continue
		}
		b = append(b, s[start:i]...)
		b = append(b, '%', hex[c>>4], hex[c&15])
		start = i + 1
	}
	return append(b, s[start:]...)
}
