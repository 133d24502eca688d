package jetstream_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/nats-io/nats.go"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/relay"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// Cases 5 and 7: nothing goes out late, and the return costs no restart.
func TestRestartOfTheServer(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}, Duplicates: 100 * time.Millisecond})
	r := connect(t, s, nil)
	r.publish("ev.a")
	r.want(relay.Accepted, "")
	s.Stop()
	eventually(t, "notice of the outage", func() bool { return r.Usable() != nil })
	for range 20 {
		var why *jetstream.Unusable
		if _, err := r.tryPublish("ev.a"); !errors.As(err, &why) || why.Code.Class() != relay.Unavailable {
			t.Fatalf("publish without a connection: %v", err)
		}
	}
	if err := r.Probe(t.Context()); err == nil {
		t.Error("the probe succeeds without a server")
	}
	s.Start()
	r.waitUsable()
	r.publish("ev.b")
	r.want(relay.Accepted, "")
	r.wantNoMore()
	if n := stored(t, st); n != 2 {
		t.Errorf("%d messages stored, want 2: what failed during the outage must not go out", n)
	}
	if lost, back := r.log.lines("warn", ""), r.log.lines("info", "connected"); len(lost) != 1 || len(back) != 2 {
		t.Errorf("%d warnings and %d connections in the log, want 1 and 2:\n%s", len(lost), len(back), r.log)
	}
}

func TestServerThatIsDownAtFirst(t *testing.T) {
	s := natstest.Prepare(t, natstest.Options{})
	r := dial(t, s, nil)
	eventually(t, "warning", func() bool { return len(r.log.lines("warn", "disconnected")) == 1 })
	if r.Usable() == nil {
		t.Error("usable without a server")
	}
	s.Start()
	r.waitUsable()
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r.publish("ev.a")
	r.want(relay.Accepted, "")
}

// Case 6: every publish ends, each once, whatever the server does meanwhile.
func TestKillInMidFlight(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, nil)
	acked, unanswered, unsent := 0, 0, 0
	sent := 0
	for round := range 3 {
		for i := range 3000 {
			if i == 1000 {
				s.Signal(syscall.SIGKILL) // and go on meanwhile
			}
			if _, err := r.tryPublish("ev.a"); err != nil {
				unsent++
			} else {
				sent++
			}
		}
		eventually(t, "end of the server", func() bool { return !s.Running() })
		eventually(t, "notice of the outage", func() bool { return r.Usable() != nil })
		s.Start()
		r.waitUsable()
		if round == 0 && unsent == 0 {
			t.Log("nothing was refused in the first round")
		}
	}
	seen := make(map[int64]bool)
	for range sent {
		res := r.result()
		if seen[res.Row] {
			t.Fatalf("two results for row %d", res.Row)
		}
		seen[res.Row] = true
		switch {
		case res.Class == relay.Accepted:
			acked++
		case res.Code == relay.CodeUnanswered && res.Sent:
			unanswered++
		default:
			t.Fatalf("%+v", res)
		}
	}
	r.wantNoMore()
	t.Logf("%d acknowledged, %d unanswered, %d unsent", acked, unanswered, unsent)
	if n := int(stored(t, st)); n < acked || n > acked+unanswered {
		t.Errorf("%d stored, but %d acknowledged and %d unanswered", n, acked, unanswered)
	}
}

// Case 6: a frozen server answers nothing and closes nothing.
func TestFrozenServer(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, func(o *jetstream.Options) { o.PublishTimeout = time.Second })
	s.Freeze()
	start := time.Now()
	sent := 0
	for range 3000 { // more than the sockets' buffers hold
		if _, err := r.tryPublish("ev.a", withData(8000)); err != nil {
			break
		}
		sent++
	}
	if d := time.Since(start); d > 4*time.Second {
		t.Errorf("publishing to a frozen server held up for %v", d)
	}
	for range sent {
		if res := r.result(); res.Code != relay.CodeUnanswered || !res.Sent {
			t.Fatalf("%+v", res)
		}
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("results came after %v", d)
	}
	eventually(t, "notice of the outage", func() bool { return r.Usable() != nil })
	if d := time.Since(start); d > 8*time.Second {
		t.Errorf("the outage was noticed after %v", d)
	}
	s.Thaw()
	r.waitUsable()
	eventually(t, "probe", func() bool { return r.Probe(t.Context()) == nil })
	r.publish("ev.b")
	r.want(relay.Accepted, "")
	r.wantNoMore()
	if n := int(stored(t, st)); n > sent+1 {
		t.Errorf("%d stored of %d sent", n, sent+1)
	}
}

// A few messages into a frozen server do not fill its socket: only time and
// unanswered pings tell.
func TestFrozenServerWithLittleTraffic(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, func(o *jetstream.Options) { o.PublishTimeout = 500 * time.Millisecond })
	s.Freeze()
	start := time.Now()
	r.publish("ev.a")
	r.want(relay.Unavailable, relay.CodeUnanswered, "unconfirmed")
	if d := time.Since(start); d > 900*time.Millisecond {
		t.Errorf("the result came after %v, long after the publish timeout", d)
	}
	if err := r.Probe(t.Context()); err == nil {
		t.Error("the probe succeeds")
	}
	eventually(t, "notice of the outage", func() bool { return len(r.log.lines("warn", "unresponsive")) == 1 })
	s.Thaw()
	r.waitUsable()
	eventually(t, "probe", func() bool { return r.Probe(t.Context()) == nil })
	r.publish("ev.b")
	r.want(relay.Accepted, "")
	r.wantNoMore()
}

func TestLameDuck(t *testing.T) {
	s := natstest.Start(t, natstest.Options{Config: "lame_duck_duration: 30s\nlame_duck_grace_period: 1s"})
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, nil)
	s.LameDuck()
	eventually(t, "end of the lame duck's connection", func() bool { return r.Usable() != nil })
	s.Kill()
	s.Start()
	r.waitUsable()
	r.publish("ev.a")
	r.want(relay.Accepted, "")
}

// The connection survives credentials that are refused for a while, however
// often, and takes new ones from the same file.
func TestCredentialsRotated(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	seed := func() (seed, public string) {
		t.Helper()
		key, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		s, _ := key.Seed()
		public, _ = key.PublicKey()
		return string(s), public
	}
	seed1, public1 := seed()
	seed2, public2 := seed()
	cases := []struct {
		name      string
		config    func(secret string) string
		old, next string // what the server wants
		options   func(*jetstream.Options)
		write     func(next bool)
	}{
		{
			name:    "password",
			config:  func(pw string) string { return fmt.Sprintf("authorization {user: relay, password: %q}", pw) },
			old:     "old-secret",
			next:    "new-secret",
			options: func(o *jetstream.Options) { o.User, o.PasswordFile = "relay", filepath.Join(dir, "password") },
			write:   func(next bool) { file("password", map[bool]string{false: "old-secret", true: "new-secret"}[next]) },
		},
		{
			name:    "token",
			config:  func(token string) string { return fmt.Sprintf("authorization {token: %q}", token) },
			old:     "old-secret",
			next:    "new-secret",
			options: func(o *jetstream.Options) { o.TokenFile = filepath.Join(dir, "token") },
			write:   func(next bool) { file("token", map[bool]string{false: "old-secret", true: "new-secret"}[next]) },
		},
		{
			name:    "nkey with another public key",
			config:  func(public string) string { return fmt.Sprintf("authorization {users: [{nkey: %s}]}", public) },
			old:     public1,
			next:    public2,
			options: func(o *jetstream.Options) { o.NKey = filepath.Join(dir, "seed") },
			write:   func(next bool) { file("seed", map[bool]string{false: seed1, true: seed2}[next]) },
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := natstest.Start(t, natstest.Options{Config: c.config(c.old)})
			c.write(false)
			r := connect(t, s, c.options)
			s.SetConfig(c.config(c.next))
			s.Restart()
			eventually(t, "refusal", func() bool {
				err := r.Usable()
				return err != nil && strings.HasPrefix(err.Error(), "credentials: ")
			})
			time.Sleep(300 * time.Millisecond) // several refusals, after two of which the library would give up
			if n := len(r.log.lines("warn", "credentials")); n != 1 {
				t.Errorf("%d warnings about credentials, want 1:\n%s", n, r.log)
			}
			c.write(true)
			r.waitUsable()
			for _, secret := range []string{"old-secret", "new-secret", seed1, seed2} {
				if strings.Contains(r.log.String(), secret) {
					t.Error("a secret is in the log")
				}
			}
		})
	}
}

// An error that the library takes for final on a standing connection.
func TestLibraryGivesTheConnectionUp(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	st := stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}})
	r := connect(t, s, nil)
	r.publish("ev.a")
	r.want(relay.Accepted, "")
	// A protocol line that is too long makes the server close the connection
	// with an error the library does not reconnect after.
	_, err := r.tryPublish("ev." + strings.Repeat("x", 5000))
	if err != nil {
		t.Fatal(err)
	}
	r.want(relay.Unavailable, relay.CodeUnanswered)
	eventually(t, "new connection", func() bool { return r.Usable() == nil && len(r.log.lines("info", "connected")) == 2 })
	if n := len(r.log.lines("warn", "maximum control line")); n != 1 {
		t.Errorf("%d warnings that name the reason, want 1:\n%s", n, r.log)
	}
	r.publish("ev.b")
	r.want(relay.Accepted, "")
	r.wantNoMore()
	if n := stored(t, st); n != 2 {
		t.Errorf("%d messages stored, want 2", n)
	}
}

func TestCloseIsFinal(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	stream(t, s, natsjs.StreamConfig{Name: "NA", Subjects: []string{"na.>"}, NoAck: true})
	r := connect(t, s, nil)
	r.publish("na.a")
	r.Close()
	r.Close()
	if res := r.want(relay.Unavailable, relay.CodeUnanswered); !res.Sent {
		t.Error("counts as unsent")
	}
	if err := r.Usable(); !errors.Is(err, jetstream.ErrClosed) {
		t.Errorf("usable: %v", err)
	}
	if _, err := r.tryPublish("na.a"); !errors.Is(err, jetstream.ErrClosed) {
		t.Errorf("publish: %v", err)
	}
	if err := r.Probe(t.Context()); !errors.Is(err, jetstream.ErrClosed) {
		t.Errorf("probe: %v", err)
	}
}

func TestSecondConnectionAfterAuthExpires(t *testing.T) {
	s := natstest.Start(t, natstest.Options{Config: "authorization {users: [{user: relay, password: pw}, {user: admin, password: pw}]}"})
	stream(t, s, natsjs.StreamConfig{Name: "EVENTS", Subjects: []string{"ev.>"}}, nats.UserInfo("admin", "pw"))
	r := connect(t, s, func(o *jetstream.Options) {
		o.URLs = []string{strings.Replace(s.URL(), "nats://", "nats://relay:pw@", 1)}
	})
	s.SetConfig("authorization {users: [{user: admin, password: pw}]}")
	s.Reload() // the server throws the user out
	eventually(t, "refusal", func() bool {
		err := r.Usable()
		return err != nil && strings.HasPrefix(err.Error(), "credentials: ")
	})
	s.SetConfig("authorization {users: [{user: relay, password: pw}, {user: admin, password: pw}]}")
	s.Reload()
	r.waitUsable()
	r.publish("ev.a")
	r.want(relay.Accepted, "")
}
