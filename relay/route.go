package relay

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/outbox-relay/relay/outbox"
)

// maxSubject bounds a rendered subject, in bytes.
const maxSubject = 255

// Route maps events to a subject.
type Route struct {
	Stream       string // pattern with * and ?, "" means *
	Tenant       string // likewise
	Subject      string // template, see [NewRoutes]
	ExpectStream string // the stream that must store the events; "" is any
}

// Routes is a compiled, ordered list of routes; first match wins. It never
// changes and is safe from any goroutine.
type Routes struct {
	routes []compiledRoute
	memo   *matchMemo // nil where a scan is as fast
}

type compiledRoute struct {
	Route
	stream, tenant glob
	template       template
	pattern        string
}

// RouteError is a fault in a route's definition.
type RouteError struct {
	Index  int    // in the order of the configuration, from 0
	Key    string // "stream", "tenant", "subject" or "expect_stream"
	Detail string
}

func (e *RouteError) Error() string {
	return fmt.Sprintf("route[%d].%s: %s", e.Index, e.Key, e.Detail)
}

// SubjectError reports an event whose subject would be invalid.
type SubjectError struct{ Subject, Detail string }

func (e *SubjectError) Error() string {
	return fmt.Sprintf("invalid subject %q: %s", shorten(e.Subject, maxSubject), e.Detail)
}

// NewRoutes compiles routes. Every fault is reported, each as a *RouteError
// inside the joined error. A template that can only give invalid subjects is
// one.
//
// A template is text with the placeholders {tenant}, {stream}, {type},
// {partitionkey} and {subject}. In their values every byte outside
// [A-Za-z0-9_-] becomes %XX, except that {stream} and {type} keep their dots.
// An absent optional value is "_".
func NewRoutes(routes []Route) (*Routes, error) {
	r := &Routes{routes: make([]compiledRoute, len(routes))}
	var errs []error
	for i, route := range routes {
		fault := func(key, detail string) {
			if detail != "" {
				errs = append(errs, &RouteError{Index: i, Key: key, Detail: detail})
			}
		}
		c := compiledRoute{Route: route}
		var detail string
		c.stream = compileGlob(route.Stream)
		fault("stream", streamPatternFault(route.Stream))
		c.tenant = compileGlob(route.Tenant)
		fault("tenant", tenantPatternFault(route.Tenant))
		c.template, detail = parseTemplate(route.Subject)
		if detail == "" {
			detail = c.template.fault(c.stream, c.tenant)
		}
		fault("subject", detail)
		fault("expect_stream", streamNameFault(route.ExpectStream))
		c.pattern = c.template.pattern(c.stream, c.tenant)
		r.routes[i] = c
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(routes) > scanRoutes {
		r.memo = &matchMemo{}
	}
	return r, nil
}

// Len counts the routes.
func (r *Routes) Len() int { return len(r.routes) }

// At returns route i as it was given.
func (r *Routes) At(i int) Route { return r.routes[i].Route }

// Match returns the index of the first route for the event, or -1.
func (r *Routes) Match(tenant, stream string) int {
	if r.memo != nil {
		return r.memo.match(r, tenant, stream)
	}
	return r.scan(tenant, stream)
}

func (r *Routes) scan(tenant, stream string) int {
	for i := range r.routes {
		if r.routes[i].stream.match(stream) && r.routes[i].tenant.match(tenant) {
			return i
		}
	}
	return -1
}

// Subject renders route i for e. An error is a *SubjectError: the result has
// an empty token, a wildcard or a prefix that belongs to the server, or is
// longer than 255 bytes.
func (r *Routes) Subject(i int, e *outbox.Event) (string, error) {
	var buf [maxSubject + 1]byte
	b := r.routes[i].template.render(buf[:0], e)
	if detail := subjectFault(b); detail != "" {
		return "", &SubjectError{Subject: string(b), Detail: detail}
	}
	return string(b), nil
}

// Pattern is the NATS subject, with wildcards, that covers everything route i
// can produce: a superset. A value that cannot hold a dot is "*". From a
// {stream} or {type} on, which may hold several tokens, the rest is ">", even
// where the template goes on. A pattern of the route without wildcards is put
// in as the value it stands for.
func (r *Routes) Pattern(i int) string { return r.routes[i].pattern }

var dots = []byte("..")

// subjectFault says what is wrong with a rendered subject; "" for nothing.
func subjectFault(b []byte) string {
	switch {
	case len(b) == 0:
		return "it is empty"
	case len(b) > maxSubject:
		return fmt.Sprintf("it has %d bytes, at most %d are allowed", len(b), maxSubject)
	case b[0] == '.', b[len(b)-1] == '.', bytes.Contains(b, dots):
		return "it has an empty token (a dot at an end, or two running)"
	}
	return prefixFault(b)
}

// prefixFault forbids the namespaces that the server keeps for itself.
func prefixFault(b []byte) string {
	if len(b) > 0 && b[0] == '$' {
		for _, p := range []string{"$JS", "$SYS"} {
			if bytes.HasPrefix(b, []byte(p)) {
				return "the prefix " + p + " belongs to the server"
			}
		}
	}
	return ""
}

func streamPatternFault(pattern string) string {
	for _, c := range []byte(pattern) {
		if !isSubjectByte(c) && c != '.' && c != '*' && c != '?' {
			return fmt.Sprintf("%q can match no stream: their names hold only A-Z a-z 0-9 . _ -", pattern)
		}
	}
	return ""
}

func tenantPatternFault(pattern string) string {
	if !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, unicode.IsControl) {
		return fmt.Sprintf("%q can match no tenant: their names are UTF-8 without control characters", pattern)
	}
	return ""
}

func streamNameFault(name string) string {
	bad := func(c rune) bool {
		return c == utf8.RuneError || unicode.IsSpace(c) || unicode.IsControl(c) || strings.ContainsRune(`.*>/\`, c)
	}
	if strings.ContainsFunc(name, bad) {
		return fmt.Sprintf("%q is no name of a JetStream stream: no blanks, dots, slashes or wildcards", name)
	}
	return ""
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

// scanRoutes is how many routes a scan handles faster than the memo.
const scanRoutes = 8

// memoSize bounds the memo: pairs of tenant and stream, each under 600 bytes.
const memoSize = 4096

// matchMemo remembers the route of each pair of tenant and stream.
type matchMemo struct {
	mu    sync.Mutex
	found map[[2]string]int
}

func (m *matchMemo) match(r *Routes, tenant, stream string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{tenant, stream}
	i, ok := m.found[key]
	if ok {
		return i
	}
	if m.found == nil || len(m.found) >= memoSize {
		m.found = make(map[[2]string]int)
	}
	i = r.scan(tenant, stream)
	// The event's strings may be parts of larger ones: keep copies.
	m.found[[2]string{strings.Clone(tenant), strings.Clone(stream)}] = i
	return i
}
