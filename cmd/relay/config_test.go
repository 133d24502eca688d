package main

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/outbox-relay/relay/relay"
)

func noEnv(string) (string, bool) { return "", false }

const exampleFile = "../../config.example.toml"

func TestExampleHasEveryKeyWithItsDefault(t *testing.T) {
	doc, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseConfig(exampleFile, doc, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.file, want.lines = exampleFile, got.lines
	want.Outbox.Path = "/var/lib/relay/outbox.db"
	want.Routes = []relay.Route{{Stream: "*", Tenant: "*", Subject: "events.{stream}.{type}"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("example\n%+v\ndefaults\n%+v", got, want)
	}

	var tree map[string]any
	md, err := toml.Decode(string(doc), &tree)
	if err != nil {
		t.Fatal(err)
	}
	var inFile []string
	for _, key := range md.Keys() {
		if name := key.String(); name != "route" && !configTables[name] {
			inFile = append(inFile, name)
		}
	}
	inCode := sortedKeys(configKeys)
	for name := range routeKeys {
		inCode = append(inCode, "route."+name)
	}
	slices.Sort(inFile)
	slices.Sort(inCode)
	if !slices.Equal(inFile, inCode) {
		t.Errorf("keys of the example\n%v\nkeys of the code\n%v", inFile, inCode)
	}
}

// minimal is a valid file that cases change.
const minimal = `[outbox]
path = "o.db"
`

func TestConfigProblems(t *testing.T) {
	tests := []struct {
		name string
		doc  string
		want []string // each problem as printed, in order; a prefix is enough
	}{
		{"empty file", "", []string{"f: outbox.path: is required"}},
		{"byte order mark", "\xef\xbb\xbf" + minimal, nil},
		{"byte order mark alone", "\xef\xbb\xbf", []string{"f: outbox.path: is required"}},
		{"unknown key", minimal + "[relay]\nleese = \"30s\"\n", []string{"f:4: relay.leese: unknown key; did you mean lease?"}},
		{"key in the wrong table", minimal + "lease = \"30s\"\n", []string{"f:3: outbox.lease: unknown key; lease belongs in [relay]"}},
		{"key before any table", "lease = \"30s\"\n" + minimal, []string{"f:1: lease: unknown key; lease belongs in [relay]"}},
		{"unknown table", minimal + "[relays]\nlease = \"30s\"\n", []string{"f:3: relays: unknown table; did you mean [relay]?"}},
		{"upper case key", "[outbox]\nPath = \"o.db\"\n", []string{"f:1: outbox.path: is required", "f:2: outbox.Path: unknown key"}},
		{"table as a value", minimal + "log = 3\n", []string{"f:3: outbox.log: unknown key"}},
		{"value for a table", "log = 3\n" + minimal, []string{"f:1: log: must be a table; write [log]"}},
		{"one table for routes", minimal + "[route]\nsubject = \"a\"\n", []string{"f:3: route: must be a list of tables; write [[route]]"}},
		{"duration without unit", minimal + "[relay]\nlease = 30\n", []string{`f:4: relay.lease: must be a duration such as "30s" in quotes, not an integer`}},
		{"duration with a word", minimal + "[relay]\nlease = \"5seconds\"\n", []string{`f:4: relay.lease: "5seconds" is no duration; write numbers with the units`}},
		{"quoted duration without unit", minimal + "[relay]\nlease = \"30\"\n", []string{`f:4: relay.lease: "30" is no duration`}},
		{"negative duration", minimal + "[relay]\nlease = \"-5s\"\n", []string{`f:4: relay.lease: "-5s" is outside 20ms..24h`}},
		{"zero duration", minimal + "[relay]\npoll = \"0s\"\n", []string{`f:4: relay.poll: "0s" is outside 1ms..10m`}},
		{"huge duration", minimal + "[relay]\nlease = \"25h\"\n", []string{`f:4: relay.lease: "25h" is outside 20ms..24h`}},
		{"overflowing duration", minimal + "[relay]\nlease = \"99999999999h\"\n", []string{`f:4: relay.lease: "99999999999h" is no duration`}},
		{"microseconds", minimal + "[relay]\npoll = \"1500us\"\n", []string{`f:4: relay.poll: "1500us" is finer than a millisecond`}},
		{"negative attempts", minimal + "[relay]\nmax_attempts = -1\n", []string{`f:4: relay.max_attempts: -1 is outside 0..1000000`}},
		{"attempts as text", minimal + "[relay]\nmax_attempts = \"20\"\n", []string{`f:4: relay.max_attempts: must be an integer (0..1000000), not a string`}},
		{"attempts as a float", minimal + "[relay]\nmax_attempts = 2.0\n", []string{`f:4: relay.max_attempts: must be an integer (0..1000000), not a float`}},
		{"number beyond 64 bits", minimal + "[relay]\nbatch = 99999999999999999999\n", []string{`f:4: relay.batch: `}},
		{"batch of zero", minimal + "[relay]\nbatch = 0\n", []string{`f:4: relay.batch: 0 is outside 1..1000`}},
		{"huge batch", minimal + "[relay]\nbatch = 1001\n", []string{`f:4: relay.batch: 1001 is outside 1..1000`}},
		{"size without unit", minimal + "[relay]\nin_flight_bytes = 100\n", []string{`f:4: relay.in_flight_bytes: must be a size such as "64KiB" in quotes, not an integer`}},
		{"size that is none", minimal + "[relay]\nin_flight_bytes = \"many\"\n", []string{`f:4: relay.in_flight_bytes: "many" is no size`}},
		{"negative size", minimal + "[relay]\nin_flight_bytes = \"-1MiB\"\n", []string{`f:4: relay.in_flight_bytes: "-1MiB" is no size`}},
		{"huge size", minimal + "[relay]\nin_flight_bytes = \"17GiB\"\n", []string{`f:4: relay.in_flight_bytes: "17GiB" is outside 64KiB..16GiB`}},
		{"multiplier not a number", minimal + "[relay.backoff]\nmultiplier = nan\n", []string{`f:4: relay.backoff.multiplier: NaN is outside 1..100`}},
		{"jitter above one", minimal + "[relay.backoff]\njitter = 1.5\n", []string{`f:4: relay.backoff.jitter: 1.5 is outside 0..1`}},
		{"longest delay below the first", minimal + "[relay.backoff]\nmax = \"500ms\"\n", []string{`f:4: relay.backoff.max: max 500ms is less than initial 1s`}},
		{"lease below twice the publish timeout", minimal + "[relay]\nlease = \"9s\"\n", []string{`f:4: relay.lease: lease 9s must be at least twice publish_timeout 5s`}},
		{"publish timeout above half the lease", minimal + "[nats]\npublish_timeout = \"16s\"\n", []string{`f:4: nats.publish_timeout: lease 30s must be at least twice publish_timeout 16s`}},
		{"empty level", minimal + "[log]\nlevel = \"\"\n", []string{`f:4: log.level: "" is none of trace, debug, info, warn, error`}},
		{"unknown level", minimal + "[log]\nlevel = \"verbose\"\n", []string{`f:4: log.level: "verbose" is none of`}},
		{"disabled level", minimal + "[log]\nlevel = \"disabled\"\n", []string{`f:4: log.level: "disabled" is none of`}},
		{"level in capitals", minimal + "[log]\nlevel = \"INFO\"\n", []string{`f:4: log.level: "INFO" is none of`}},
		{"log format", minimal + "[log]\nformat = \"text\"\n", []string{`f:4: log.format: "text" is none of json, console`}},
		{"retention of zero", minimal + "[retention]\ndelivered = \"0s\"\n", []string{`f:4: retention.delivered: "0s" is outside 1ms..87600h; "" turns it off`}},
		{"retention in days", minimal + "[retention]\ndelivered = \"7d\"\n", []string{`f:4: retention.delivered: "7d" is no duration`}},
		{"boolean as text", minimal + "[nats]\ntrace_headers = \"yes\"\n", []string{`f:4: nats.trace_headers: must be true or false, not a string`}},
		{"urls as text", minimal + "[nats]\nurls = \"nats://h\"\n", []string{`f:4: nats.urls: must be an array of strings`}},
		{"no urls", minimal + "[nats]\nurls = []\n", []string{`f:4: nats.urls: must name at least one server`}},
		{"url without scheme", minimal + "[nats]\nurls = [\"localhost:4222\"]\n", []string{`f:4: nats.urls: entry 1 must begin with nats://`}},
		{"url of the web", minimal + "[nats]\nurls = [\"nats://a\", \"http://h\"]\n", []string{`f:4: nats.urls: entry 2 must begin with nats://`}},
		{"every bad url", minimal + "[nats]\nurls = [\"http://h\", \"nats://a\", \"\", 1]\n", []string{`f:4: nats.urls: entry 1 must`, `f:4: nats.urls: entry 3 `, `f:4: nats.urls: entry 4 must be a string`}},
		{"url without host", minimal + "[nats]\nurls = [\"nats://:4222\"]\n", []string{`f:4: nats.urls: entry 1 names no host`}},
		{"url with a bad port", minimal + "[nats]\nurls = [\"nats://h:99999\"]\n", []string{`f:4: nats.urls: entry 1 has port "99999", outside 1..65535`}},
		{"web sockets mixed", minimal + "[nats]\nurls = [\"nats://h\", \"ws://h\"]\n", []string{`f:4: nats.urls: mixes ws://`}},
		{"two credentials", minimal + "[nats]\ncreds = \"c\"\nnkey = \"n\"\n", []string{`f:4: nats.creds: use one of creds, nkey`}},
		{"user without password", minimal + "[nats]\nuser = \"u\"\n", []string{`f:4: nats.user: user and password_file go together`}},
		{"certificate without key", minimal + "[nats.tls]\ncert = \"c\"\n", []string{`f:4: nats.tls.cert: cert and key go together`}},
		{"wildcard in the inbox prefix", minimal + "[nats]\ninbox_prefix = \"a.>\"\n", []string{`f:4: nats.inbox_prefix: "a.>" is no subject prefix`}},
		{"metrics without port", minimal + "[metrics]\nlisten = \"localhost\"\n", []string{`f:4: metrics.listen: "localhost" is no address; write host:port`}},
		{"metrics with a bad port", minimal + "[metrics]\nlisten = \":70000\"\n", []string{`f:4: metrics.listen: port "70000" is outside 0..65535`}},
		{"undefined variable", "[outbox]\npath = \"${NOPE}/o.db\"\n", []string{`f:2: outbox.path: the environment variable NOPE is not set`}},
		{"unclosed variable", "[outbox]\npath = \"${NOPE\"\n", []string{`f:2: outbox.path: ${ without a variable name and }`}},
		{"long tenant", "[outbox]\npath = \"o.db\"\ntenant = \"" + strings.Repeat("t", 256) + "\"\n", []string{`f:3: outbox.tenant: 256 bytes are more than 255`}},
		{"control character", "[outbox]\npath = \"o\\u0000.db\"\n", []string{`f:2: outbox.path: holds a control character`}},
		{"syntax", "[outbox\npath = \"o.db\"\n", []string{`f:2: `}},
		{"same key twice", "[outbox]\npath = \"a\"\npath = \"b\"\n", []string{`f:3: `}},
		{"invalid utf-8", "[outbox]\npath = \"\xff\"\n", []string{`f:2: `}},
		{"route without subject", minimal + "[[route]]\nstream = \"a\"\n[[route]]\nstream = \"b\"\n",
			[]string{`f:3: route[0].subject: is required`, `f:5: route[1].subject: is required`}},
		{"unknown key in the second route", minimal + "[[route]]\nsubject = \"a\"\n[[route]]\nsubject = \"b\"\nsteam = \"x\"\n",
			[]string{`f:7: route[1].steam: unknown key; did you mean stream?`}},
		{"template with an unknown placeholder", minimal + "[[route]]\nsubject = \"a\"\n[[route]]\nsubject = \"{nope}\"\n", []string{`f:6: route[1].subject: `}},
		{"template that can only give invalid subjects", minimal + "[[route]]\nsubject = \"ev..{stream}\"\n", []string{`f:4: route[0].subject: `}},
		{"bad stream and template in one route", minimal + "[[route]]\nstream = \"a b\"\nsubject = \"$JS.{stream}\"\n",
			[]string{`f:4: route[0].stream: `, `f:5: route[0].subject: `}},
		{"all problems at once", "[outbox]\nbusy_retries = true\n[relay]\nlease = 30\n[log]\nlevel = \"loud\"\n",
			[]string{`f:1: outbox.path:`, `f:2: outbox.busy_retries:`, `f:4: relay.lease:`, `f:6: log.level:`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseConfig("f", []byte(tt.doc), noEnv)
			var conf *configError
			if !errors.As(err, &conf) {
				if err != nil || len(tt.want) > 0 {
					t.Fatalf("got %v, want %q", err, tt.want)
				}
				return
			}
			var got []string
			for _, p := range conf.Problems {
				got = append(got, p.String())
			}
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestSecretsStayOutOfProblems(t *testing.T) {
	for _, doc := range []string{
		minimal + "[nats]\nurls = [\"nats://user:hunter2@h:99999\"]\n",
		minimal + "[nats]\nurls = [\"nats://user:hunter2@\"]\n",
		minimal + "[nats]\nurls = [\"http://hunter2@h\"]\n",
		minimal + "[nats]\nurls = [\"nats://user:hunter2%zz@h\"]\n",
		minimal + "[nats]\nurls = \"nats://user:hunter2@h\"\n",
		minimal + "[nats]\npassword = \"hunter2\"\n",
		minimal + "[nats]\nurls = [\"nats://u:hunter2@h\", \"ws://h\"]\n",
	} {
		_, err := parseConfig("f", []byte(doc), noEnv)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q gives %v", doc, err)
		}
	}
}

func TestPathsTakeVariables(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"STATE": "/s", "CREDENTIALS_DIRECTORY": "/c"}[name]
		return v, ok
	}
	c, err := parseConfig("f", []byte(`
[outbox]
path = "${STATE}/a${STATE}$x.db"
[nats]
creds = "${CREDENTIALS_DIRECTORY}/nats.creds"
name = "${STATE}"
`), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.Outbox.Path != "/s/a/s$x.db" || c.NATS.Creds != "/c/nats.creds" || c.NATS.Name != "${STATE}" {
		t.Errorf("got %q, %q, %q", c.Outbox.Path, c.NATS.Creds, c.NATS.Name)
	}
}

// A service's file names its credentials by a variable that only its manager
// sets. Looking at the outbox by hand needs none of them.
func TestUnsetVariableMattersToTheBrokerOnly(t *testing.T) {
	c, err := parseConfig("f", []byte(minimal+`
[nats]
user = "u"
password_file = "${CREDENTIALS_DIRECTORY}/nats.password"
[nats.tls]
cert = "${CREDENTIALS_DIRECTORY}/cert.pem"
key = "${CREDENTIALS_DIRECTORY}/key.pem"
`), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	err = c.requireBroker()
	for _, want := range []string{"f:", "nats.password_file: ", "nats.tls.cert: ", "nats.tls.key: ", "CREDENTIALS_DIRECTORY is not set"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error %v lacks %q", err, want)
		}
	}
	if _, err := parseConfig("f", []byte("[outbox]\npath = \"${NOWHERE}/a.db\"\n"), noEnv); err == nil {
		t.Error("a database path with an unset variable is taken")
	}
}

func TestGivenValuesReachTheConfig(t *testing.T) {
	c, err := parseConfig("f", []byte(minimal+`
[relay]
max_attempts = 0
lease = "1m30s"
in_flight_bytes = "8MB"
[relay.backoff]
multiplier = 3
jitter = 0.0
[retention]
delivered = "168h"
`), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if c.Relay.MaxAttempts != 0 || c.Relay.Lease != 90*time.Second || c.Relay.InFlightBytes != 8_000_000 ||
		c.Relay.Backoff.Multiplier != 3 || c.Relay.Backoff.Jitter != 0 || c.Retention.Delivered != 168*time.Hour {
		t.Errorf("got %+v %+v", c.Relay, c.Retention)
	}
}

func TestKeyLines(t *testing.T) {
	doc := `# path = 1
a = 1 # b = 2
"quoted.key" = 2
s = """
[not.a.table]
x = 1
""" # end
l = '''
y = "
'''
arr = [ # comment ]
  "]", 'x]',
  [1, 2],
]
inline = {k = "}", j = 1}
[t]
x.y = 1
[t.u]
z = "\"]"
[[r]]
p = 1
[r.sub]
q = 1
[[r]]

p = 2
last = true`
	want := keyLines{
		"a": 2, "quoted.key": 3, "s": 4, "l": 8, "arr": 11, "inline": 15,
		"t": 16, "t.x": 17, "t.x.y": 17, "t.u": 18, "t.u.z": 19,
		"r": 20, "r[0]": 20, "r[0].p": 21, "r[0].sub": 22, "r[0].sub.q": 23, "r[1]": 24, "r[1].p": 26, "r[1].last": 27,
	}
	var tree map[string]any
	if _, err := toml.Decode(doc, &tree); err != nil {
		t.Fatal(err)
	}
	if got := scanKeys(doc); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	for key, line := range map[string]int{"inline.k": 15, "r[0].nope": 20, "r[1].nope": 24, "nope": 0, "t.nope.z": 16} {
		if got := scanKeys(doc).at(key); got != line {
			t.Errorf("%s is at line %d, want %d", key, got, line)
		}
	}
}

func FuzzConfig(f *testing.F) {
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add(minimal)
	f.Fuzz(func(t *testing.T, doc string) {
		_, err := parseConfig("f", []byte(doc), noEnv) // must not panic, nor loop
		var conf *configError
		if err != nil && (!errors.As(err, &conf) || len(conf.Problems) == 0) {
			t.Errorf("error without problems: %v", err)
		}
	})
}
