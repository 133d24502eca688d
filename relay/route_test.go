package relay

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbox-relay/relay/outbox"
)

func TestSubject(t *testing.T) {
	event := func(change func(*outbox.Event)) *outbox.Event {
		e := &outbox.Event{Tenant: "acme", Stream: "orders.v1", Type: "com.example.placed"}
		change(e)
		return e
	}
	plain := event(func(*outbox.Event) {})
	cases := []struct {
		name     string
		template string
		event    *outbox.Event
		want     string // "" wants a SubjectError that holds fault
		fault    string
	}{
		{"stream and type keep their dots", "ev.{tenant}.{stream}.{type}", plain, "ev.acme.orders.v1.com.example.placed", ""},
		{"absent optional values are _", "ev.{partitionkey}.{subject}", plain, "ev._._", ""},
		{"literal only", "ev.all", plain, "ev.all", ""},
		{"value inside a token", "ev.t-{tenant}-x", plain, "ev.t-acme-x", ""},
		{"dots of a tenant are encoded", "ev.{tenant}",
			event(func(e *outbox.Event) { e.Tenant = "a.b" }), "ev.a%2Eb", ""},
		{"wildcards and blanks are encoded", "ev.{subject}",
			event(func(e *outbox.Event) { e.Subject = "* > a\tb" }), "ev.%2A%20%3E%20a%09b", ""},
		{"a newline is encoded", "ev.{partitionkey}",
			event(func(e *outbox.Event) { e.PartitionKey = "a\r\nb" }), "ev.a%0D%0Ab", ""},
		{"percent is encoded", "ev.{subject}", event(func(e *outbox.Event) { e.Subject = "%41" }), "ev.%2541", ""},
		{"every byte of UTF-8 is encoded", "ev.{subject}",
			event(func(e *outbox.Event) { e.Subject = "é" }), "ev.%C3%A9", ""},
		{"wildcards in a type are encoded", "ev.{type}", event(func(e *outbox.Event) { e.Type = "a.>.*" }), "ev.a.%3E.%2A", ""},
		{"255 bytes pass", "{subject}",
			event(func(e *outbox.Event) { e.Subject = strings.Repeat("x", 255) }), strings.Repeat("x", 255), ""},
		{"256 bytes are too many", "{subject}",
			event(func(e *outbox.Event) { e.Subject = strings.Repeat("x", 256) }), "", "256 bytes"},
		{"encoding counts towards the length", "{subject}",
			event(func(e *outbox.Event) { e.Subject = strings.Repeat("é", 60) }), "", "360 bytes"},
		{"two dots running", "ev.{stream}", event(func(e *outbox.Event) { e.Stream = "a..b" }), "", "empty token"},
		{"leading dot", "{type}.x", event(func(e *outbox.Event) { e.Type = ".a" }), "", "empty token"},
		{"trailing dot", "x.{type}", event(func(e *outbox.Event) { e.Type = "a." }), "", "empty token"},
		{"dots that meet", "x.{type}", event(func(e *outbox.Event) { e.Type = ".a" }), "", "empty token"},
		{"prefix of the JetStream API", "$J{type}", event(func(e *outbox.Event) { e.Type = "S.API.x" }), "", "$JS"},
		{"prefix of the system account", "$SY{type}", event(func(e *outbox.Event) { e.Type = "S.x" }), "", "$SYS"},
		{"dollar elsewhere", "ev.$JS.{stream}", plain, "ev.$JS.orders.v1", ""},
		{"dollar of a value is encoded", "{subject}",
			event(func(e *outbox.Event) { e.Subject = "$JS.API" }), "%24JS%2EAPI", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := NewRoutes([]Route{{Subject: c.template}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Subject(0, c.event)
			var bad *SubjectError
			switch {
			case c.want != "" && err != nil:
				t.Fatalf("error %v, want %q", err, c.want)
			case got != c.want:
				t.Fatalf("subject %q, want %q", got, c.want)
			case c.want == "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.fault)):
				t.Fatalf("error %v, want a SubjectError with %q", err, c.fault)
			}
		})
	}
}

func TestNewRoutesRefuses(t *testing.T) {
	cases := []struct {
		name  string
		route Route
		want  string
	}{
		{"empty template", Route{}, "route[1].subject"},
		{"unknown placeholder", Route{Subject: "ev.{id}"}, "route[1].subject: unknown placeholder {id}"},
		{"placeholder in other case", Route{Subject: "ev.{Tenant}"}, "unknown placeholder {Tenant}"},
		{"open brace", Route{Subject: "ev.{stream"}, "{ without its }"},
		{"nested brace", Route{Subject: "ev.{a{stream}}"}, "{ without its }"},
		{"closing brace", Route{Subject: "ev.stream}"}, "} without its {"},
		{"leading dot", Route{Subject: ".ev.{stream}"}, "can only give invalid subjects"},
		{"trailing dot", Route{Subject: "ev.{stream}."}, "can only give invalid subjects"},
		{"empty token", Route{Subject: "ev..{stream}"}, "can only give invalid subjects"},
		{"star", Route{Subject: "ev.*"}, "wildcard"},
		{"greater than", Route{Subject: "ev.>"}, "wildcard"},
		{"blank", Route{Subject: "ev. {stream}"}, "blank"},
		{"newline", Route{Subject: "ev.\n{stream}"}, "blank or a control"},
		{"JetStream API", Route{Subject: "$JS.API.{stream}"}, "$JS"},
		{"system account", Route{Subject: "$SYS.x"}, "$SYS"},
		{"too long at its shortest", Route{Subject: strings.Repeat("x", 255) + "{stream}"}, "256 bytes"},
		{"only stream has an empty token", Route{Stream: "a..b", Subject: "ev.{stream}"}, "can only give invalid subjects"},
		{"stream pattern that matches none", Route{Stream: "a b*", Subject: "ev"}, "route[1].stream"},
		{"tenant pattern that matches none", Route{Tenant: "a\x00*", Subject: "ev"}, "route[1].tenant"},
		{"expected stream with a dot", Route{Subject: "ev", ExpectStream: "A.B"}, "route[1].expect_stream"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewRoutes([]Route{{Subject: "good"}, c.route})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			var re *RouteError
			if !errors.As(err, &re) || re.Index != 1 {
				t.Fatalf("no RouteError for index 1 in %v", err)
			}
		})
	}
}

func TestNewRoutesReportsEveryFault(t *testing.T) {
	_, err := NewRoutes([]Route{{Subject: "a..b"}, {Subject: "{x}", ExpectStream: "A B"}})
	for _, want := range []string{"route[0].subject", "route[1].subject", "route[1].expect_stream"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	routes := []Route{
		{Stream: "orders.*", Tenant: "acme", Subject: "a"},
		{Stream: "orders", Subject: "b"},
		{Stream: "?x*y", Subject: "c"},
		{Tenant: "größe-?", Subject: "d"},
		{Stream: "*", Tenant: "", Subject: "e"},
	}
	many := append([]Route(nil), routes[:4]...)
	for i := range scanRoutes {
		many = append(many, Route{Stream: fmt.Sprintf("other%d", i), Subject: "x"})
	}
	many = append(many, routes[4])
	last := len(many) - 1
	cases := []struct {
		name, tenant, stream string
		few, many            int
	}{
		{"prefix and tenant", "acme", "orders.v1", 0, 0},
		{"other tenant falls through", "b", "orders.v1", 4, last},
		{"literal", "b", "orders", 1, 1},
		{"literal is whole", "b", "orders2", 4, last},
		{"question mark and star", "b", "axbby", 2, 2},
		{"star may be empty", "b", "axy", 2, 2},
		{"question mark needs a character", "b", "xy", 4, last},
		{"question mark takes a whole character", "größe-é", "s", 3, 3},
		{"question mark takes one only", "größe-éé", "s", 4, last},
	}
	for _, list := range [][]Route{routes, many} {
		r, err := NewRoutes(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			want := c.few
			if len(list) == len(many) {
				want = c.many
			}
			for range 2 { // the second answer may come from the memo
				if got := r.Match(c.tenant, c.stream); got != want {
					t.Errorf("%s among %d routes: route %d, want %d", c.name, len(list), got, want)
				}
			}
		}
	}
	r, _ := NewRoutes(routes[:4])
	if got := r.Match("b", "none"); got != -1 {
		t.Errorf("route %d for an event that none takes", got)
	}
}

func TestMemoStaysBounded(t *testing.T) {
	var list []Route
	for i := range scanRoutes + 1 {
		list = append(list, Route{Stream: fmt.Sprintf("s%d", i), Subject: "x"})
	}
	r, err := NewRoutes(list)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * memoSize {
		r.Match("t", fmt.Sprintf("stream%d", i))
	}
	if n := len(r.memo.found); n > memoSize {
		t.Errorf("memo holds %d pairs, at most %d allowed", n, memoSize)
	}
}

func TestPattern(t *testing.T) {
	cases := []struct {
		name  string
		route Route
		want  string
	}{
		{"literal", Route{Subject: "ev.all"}, "ev.all"},
		{"one token each", Route{Subject: "ev.{tenant}.{partitionkey}.{subject}"}, "ev.*.*.*"},
		{"stream at the end", Route{Subject: "ev.{tenant}.{stream}"}, "ev.*.>"},
		{"stream in the middle covers the rest", Route{Subject: "ev.{stream}.{tenant}"}, "ev.>"},
		{"type inside a token", Route{Subject: "ev.t-{type}"}, "ev.>"},
		{"value inside a token", Route{Subject: "ev.t-{tenant}.x"}, "ev.*.x"},
		{"only a stream", Route{Subject: "{stream}"}, ">"},
		{"stream fixed by the route", Route{Stream: "orders.v1", Subject: "ev.{stream}.{tenant}"}, "ev.orders.v1.*"},
		{"tenant fixed by the route", Route{Tenant: "a.b", Subject: "ev.{tenant}.x"}, "ev.a%2Eb.x"},
		{"stream narrowed by the route only", Route{Stream: "orders.*", Subject: "ev.{stream}"}, "ev.>"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := NewRoutes([]Route{c.route})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Pattern(0); got != c.want {
				t.Errorf("pattern %q, want %q", got, c.want)
			}
		})
	}
}

// Whatever the template and the event: the subject is legal, and the pattern
// covers it.
func TestSubjectIsLegalAndCovered(t *testing.T) {
	parts := []string{"{tenant}", "{stream}", "{type}", "{partitionkey}", "{subject}", ".", "ev", "-", "$"}
	rapid.Check(t, func(t *rapid.T) {
		tmpl := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 8).Draw(t, "template"), "")
		r, err := NewRoutes([]Route{{Subject: tmpl}})
		if err != nil {
			return
		}
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab.*> \n%é_-$")))
		e := &outbox.Event{
			Tenant: text.Draw(t, "tenant"), Stream: text.Draw(t, "stream"), Type: text.Draw(t, "type"),
			PartitionKey: text.Draw(t, "key"), Subject: text.Draw(t, "subject"),
		}
		subject, err := r.Subject(0, e)
		if err != nil {
			return
		}
		if strings.ContainsAny(subject, "*> \t\r\n") || len(subject) > maxSubject {
			t.Fatalf("subject %q", subject)
		}
		for _, token := range strings.Split(subject, ".") {
			if token == "" {
				t.Fatalf("subject %q has an empty token", subject)
			}
		}
		if !covers(r.Pattern(0), subject) {
			t.Fatalf("pattern %q does not cover %q", r.Pattern(0), subject)
		}
	})
}

func covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		if token == ">" {
			return len(s) > i
		}
		if i >= len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(p) == len(s)
}

func BenchmarkSubject(b *testing.B) {
	r, err := NewRoutes([]Route{{Subject: "ev.{tenant}.{stream}.{type}.{partitionkey}"}})
	if err != nil {
		b.Fatal(err)
	}
	e := &outbox.Event{Tenant: "acme", Stream: "orders.v1", Type: "com.example.order.placed", PartitionKey: "customer/4711"}
	b.ReportAllocs()
	for b.Loop() {
		if i := r.Match(e.Tenant, e.Stream); i != 0 {
			b.Fatal(i)
		}
		if _, err := r.Subject(0, e); err != nil {
			b.Fatal(err)
		}
	}
}
