package relay

import "github.com/outbox-relay/relay/outbox"

// Route maps events to a subject.
type Route struct {
	Stream       string // pattern with * and ?, "" means *
	Tenant       string
	Subject      string // template
	ExpectStream string
}

// Routes is a compiled, ordered list of routes; first match wins.
type Routes struct{ routes []Route }

// NewRoutes compiles routes; errors name the route by its index and key. A
// template that can only give invalid subjects is an error.
func NewRoutes(routes []Route) (*Routes, error) { panic("todo") }

// Match returns the index of the first route for the event, or -1.
func (r *Routes) Match(tenant, stream string) int { panic("todo") }

// Subject renders route i for e. An error is a *SubjectError.
func (r *Routes) Subject(i int, e *outbox.Event) (string, error) { panic("todo") }

// Pattern is the NATS subject (with wildcards) that covers everything route i
// can produce.
func (r *Routes) Pattern(i int) string { panic("todo") }

// Len counts the routes; At returns route i.
func (r *Routes) Len() int       { return len(r.routes) }
func (r *Routes) At(i int) Route { return r.routes[i] }

// SubjectError reports an event whose subject would be invalid.
type SubjectError struct{ Subject, Detail string }

func (e *SubjectError) Error() string { return "invalid subject " + e.Subject + ": " + e.Detail }
