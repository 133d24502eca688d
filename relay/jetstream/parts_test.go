package jetstream

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
)

func TestSubjectsOverlapAndCover(t *testing.T) {
	cases := []struct {
		a, b            string
		overlap, covers bool // a and b; a covers b
	}{
		{"ev.>", "ev.a", true, true},
		{"ev.a", "ev.>", true, false},
		{"ev.>", "ev", false, false},
		{"ev", "ev.>", false, false},
		{">", "a.b.c", true, true},
		{"ev.*", "ev.a", true, true},
		{"ev.*", "ev.>", true, false},
		{"ev.*", "ev.a.b", false, false},
		{"*.a", "ev.*", true, false},
		{"ev.a", "ev.b", false, false},
		{"ev.*.x", "ev.a.*", true, false},
		{"ev.*.>", "ev.a.b.c", true, true},
		{"ev.*.>", "ev.a", false, false},
		{"ev.>", "ev.*.>", true, true},
		{"ev.*", "ev.*", true, true},
	}
	for _, c := range cases {
		if got := subjectsOverlap(c.a, c.b); got != c.overlap {
			t.Errorf("overlap of %s and %s: %v", c.a, c.b, got)
		}
		if subjectsOverlap(c.b, c.a) != c.overlap {
			t.Errorf("overlap of %s and %s depends on their order", c.a, c.b)
		}
		if got := subjectCovers(c.a, c.b); got != c.covers {
			t.Errorf("%s covers %s: %v", c.a, c.b, got)
		}
	}
}

func TestReach(t *testing.T) {
	cases := []struct {
		name    string
		grants  *grants
		pattern string
		want    reach
	}{
		{"no limits", nil, "ev.>", reachAll},
		{"empty lists", &grants{}, "ev.>", reachAll},
		{"allowed whole", &grants{Allow: []string{"ev.>"}}, "ev.*.>", reachAll},
		{"allowed in part", &grants{Allow: []string{"ev.a.>"}}, "ev.>", reachSome},
		{"not allowed", &grants{Allow: []string{"other.>"}}, "ev.>", reachNone},
		{"denied whole", &grants{Deny: []string{"ev.>"}}, "ev.a", reachNone},
		{"denied in part", &grants{Deny: []string{"ev.a"}}, "ev.>", reachSome},
		{"deny wins over allow", &grants{Allow: []string{">"}, Deny: []string{"ev.>"}}, "ev.>", reachNone},
	}
	for _, c := range cases {
		if got := c.grants.reach(c.pattern); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestReconnectDelay(t *testing.T) {
	cases := []struct {
		name string
		b    relay.Backoff
		n    int
		want time.Duration
	}{
		{"first", relay.Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 2}, 1, time.Second},
		{"third", relay.Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 2}, 3, 4 * time.Second},
		{"capped at 30 s whatever the maximum", relay.Backoff{Initial: time.Second, Max: 5 * time.Minute, Multiplier: 2}, 60, 30 * time.Second},
		{"capped at the maximum", relay.Backoff{Initial: time.Second, Max: 3 * time.Second, Multiplier: 2}, 9, 3 * time.Second},
		{"zero value", relay.Backoff{}, 1, time.Second},
		{"after days", relay.Backoff{Initial: time.Second, Max: time.Minute, Multiplier: 10}, 1 << 20, 30 * time.Second},
	}
	for _, c := range cases {
		if got := reconnectDelay(c.b, c.n); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	jittered := relay.Backoff{Initial: 10 * time.Second, Max: time.Minute, Multiplier: 2, Jitter: 0.5}
	for range 1000 {
		if d := reconnectDelay(jittered, 9); d < 15*time.Second || d > 30*time.Second {
			t.Fatalf("%v with jitter", d)
		}
	}
}

// Whatever order of messages: the map holds the last one's headers, no more,
// and the size is the wire's.
func TestHeadersAreTheLastMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h headers
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "dd", "e"}), 0, 5, rapid.ID[string])
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			h.reset()
			want := nats.Header{}
			for _, name := range names.Draw(t, "names") {
				prefix := rapid.SampledFrom([]string{"", "ce-"}).Draw(t, "prefix")
				value := rapid.StringMatching(`[!-~]{0,5}`).Draw(t, "value")
				h.set(prefix, name, value)
				want.Set(prefix+name, value)
			}
			got := h.finish()
			if len(got) != len(want) {
				t.Fatalf("headers %v, want %v", got, want)
			}
			for k := range want {
				if len(got[k]) != 1 || got.Get(k) != want.Get(k) {
					t.Fatalf("headers %v, want %v", got, want)
				}
			}
			// The library counts subject, reply, headers and data together.
			m := nats.Msg{Header: want}
			if size := m.Size(); len(want) > 0 && h.size != size {
				t.Fatalf("size %d, on the wire %d: %v", h.size, size, want)
			}
		}
	})
}

// Flights against a model: what is added comes out once, oldest first.
func TestFlights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table flights
		var ids []uint64
		model := map[uint64]int64{}
		row := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				row++
				id, first := table.add(flight{row: row, sent: time.Duration(row)})
				if id == 0 || first != (len(model) == 0) {
					t.Fatalf("id %d, first %v among %d", id, first, len(model))
				}
				ids = append(ids, id)
				model[id] = row
			},
			"take": func(t *rapid.T) {
				if len(ids) == 0 {
					return
				}
				id := rapid.SampledFrom(ids).Draw(t, "id")
				f, ok := table.take(id)
				if want, have := model[id]; have != ok || ok && f.row != want {
					t.Fatalf("took %d %v, want %d %v", f.row, ok, want, have)
				}
				delete(model, id)
			},
			"expire": func(t *rapid.T) {
				until := int64(rapid.IntRange(0, int(row)).Draw(t, "until"))
				last := int64(0)
				for _, f := range table.takeSent(time.Duration(until)) {
					if f.row <= last || f.row > until {
						t.Fatalf("row %d after %d, until %d", f.row, last, until)
					}
					last = f.row
					for id, r := range model {
						if r == f.row {
							delete(model, id)
						}
					}
				}
			},
			"filter": func(t *rapid.T) {
				taken := table.takeIf(func(f *flight) bool { return f.row%3 == 0 })
				for _, f := range taken {
					for id, r := range model {
						if r == f.row {
							delete(model, id)
						}
					}
				}
				for _, r := range model {
					if r%3 == 0 {
						t.Fatalf("row %d stayed", r)
					}
				}
			},
			"": func(t *rapid.T) {
				oldest := int64(0)
				for _, r := range model {
					if oldest == 0 || r < oldest {
						oldest = r
					}
				}
				sent, ok := table.oldestSent()
				if ok != (len(model) > 0) || int64(sent) != oldest || table.count != len(model) {
					t.Fatalf("oldest %d %v among %d, want %d among %d", sent, ok, table.count, oldest, len(model))
				}
			},
		})
	})
}

func TestPercentEncode(t *testing.T) {
	for in, want := range map[string]string{
		"plain":           "plain",
		`größe é 100% "q`: "gr%C3%B6%C3%9Fe%20%C3%A9%20100%25%20%22q",
		" x ":             "%20x%20",
		"a\r\nb\x7f":      "a%0D%0Ab%7F",
		"":                "",
	} {
		if got := outbox.PercentEncode(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestConnectRefusesBadOptions(t *testing.T) {
	dir := t.TempDir()
	cases := []struct {
		name string
		o    Options
		want string
	}{
		{"port that is none", Options{URLs: []string{"nats://ok", "nats://relay:hunter2@host:99999x"}}, "nats.urls[1]"},
		{"other scheme", Options{URLs: []string{"http://host"}}, "nats.urls[0]"},
		{"no host", Options{URLs: []string{"nats://:4222"}}, "nats.urls[0]"},
		{"missing credentials", Options{Creds: dir + "/none.creds"}, "nats.creds: open " + dir},
		{"missing seed", Options{NKey: dir + "/none"}, "nats.nkey"},
		{"missing password", Options{User: "u", PasswordFile: dir + "/none"}, "nats.password_file"},
		{"missing token", Options{TokenFile: dir + "/none"}, "nats.token_file"},
		{"missing CA", Options{TLS: TLS{CA: dir + "/none"}}, "nats.tls.ca"},
		{"certificate without key", Options{TLS: TLS{Cert: dir + "/none"}}, "nats.tls.key"},
		{"key without certificate", Options{TLS: TLS{Key: dir + "/none"}}, "nats.tls.cert"},
		{"password without user", Options{PasswordFile: dir}, "needs nats.user"},
		{"two ways to authenticate", Options{User: "u", URLs: []string{"nats://a:hunter2@h"}}, "keep one"},
		{"domain and prefix", Options{Domain: "d", APIPrefix: "p"}, "nats.domain"},
		{"inbox prefix with a wildcard", Options{InboxPrefix: "_INBOX.*"}, "nats.inbox_prefix"},
		{"domain with a blank", Options{Domain: "a b"}, "nats.domain"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := Connect(c.o)
			if err == nil {
				p.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q", err)
			}
		})
	}
}
