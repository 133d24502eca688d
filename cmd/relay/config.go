package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/outbox-relay/relay/relay"
)

// config is the configuration with its defaults filled in.
type config struct {
	file      string   // "" when only a database was named
	lines     keyLines // where the file sets each key
	Outbox    outboxConfig
	Relay     relayConfig
	NATS      natsConfig
	Routes    []relay.Route
	Retention relay.Retention
	Metrics   metricsConfig
	Log       logConfig

	unset []problem // paths for the broker's use whose variables are not set
}

type outboxConfig struct {
	Path        string
	Tenant      string // "": every tenant
	Worker      string // "": host and process id
	BusyTimeout time.Duration
	BusyRetries int
	Synchronous string
	MaxEvent    int64 // bytes
}

type relayConfig struct {
	Batch         int
	InFlight      int
	InFlightBytes int64
	Lease         time.Duration
	Poll          time.Duration
	Drain         time.Duration
	MaxAttempts   int // 0: never
	Unrouted      string
	Backoff       relay.Backoff
}

type natsConfig struct {
	URLs           []string
	Name           string
	Creds          string
	NKey           string
	User           string
	PasswordFile   string
	TokenFile      string
	PublishTimeout time.Duration
	Domain         string
	APIPrefix      string
	InboxPrefix    string
	Mode           string
	MsgIDScope     string
	RoutingHeaders bool
	TraceHeaders   bool
	TLS            tlsConfig
}

type tlsConfig struct {
	CA, Cert, Key  string
	HandshakeFirst bool
}

type metricsConfig struct{ Listen string }

type logConfig struct{ Level, Format string }

// defaultConfig is what a file that sets nothing gets. config.example.toml
// repeats these values; a test compares the two.
func defaultConfig() config {
	return config{
		Outbox: outboxConfig{BusyTimeout: 5 * time.Second, BusyRetries: 3, Synchronous: "normal", MaxEvent: 64 << 10},
		Relay: relayConfig{
			Batch: 512, InFlight: 2048, InFlightBytes: 64 << 20,
			Lease: 30 * time.Second, Poll: 500 * time.Millisecond, Drain: 20 * time.Second,
			MaxAttempts: 20, Unrouted: "retry",
			Backoff: relay.Backoff{Initial: time.Second, Max: 5 * time.Minute, Multiplier: 2, Jitter: 0.2},
		},
		NATS: natsConfig{
			URLs: []string{"nats://127.0.0.1:4222"}, Name: "relay",
			PublishTimeout: 5 * time.Second, Mode: "binary", MsgIDScope: "tenant", RoutingHeaders: true,
		},
		Retention: relay.Retention{Every: time.Minute, Batch: 500},
		Log:       logConfig{Level: "info", Format: "json"},
	}
}

// problem is one mistake in a configuration file. Line 0: the file lacks the key.
type problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

func (p problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Key != "" {
		s += ": " + p.Key
	}
	return s + ": " + p.Message
}

// configError lists every mistake found in a configuration file.
type configError struct{ Problems []problem }

func (e *configError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

// natsProblems gives each mistake that the connection's own check found the line
// of its key.
func (c *config) natsProblems(err error) error {
	errs := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs = joined.Unwrap()
	}
	var problems []problem
	for _, err := range errs {
		key, message, ok := strings.Cut(err.Error(), ": ")
		if !ok || !strings.HasPrefix(key, "nats.") || strings.Contains(key, " ") {
			key, message = "nats", err.Error()
		}
		problems = append(problems, problem{File: c.file, Line: c.lines.at(key), Key: key, Message: message})
	}
	return &configError{problems}
}

const maxConfigBytes = 1 << 20

// loadConfig reads the TOML file at path. The error is a *configError with every
// mistake in the file; it never holds a secret.
func loadConfig(path string) (config, error) {
	f, err := os.Open(path)
	if err != nil {
		return config{}, &configError{[]problem{{File: path, Message: "cannot open the configuration file: " + rootCause(err)}}}
	}
	defer f.Close()
	doc, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err == nil && len(doc) > maxConfigBytes {
		err = errors.New("larger than 1 MiB")
	}
	if err != nil {
		return config{}, &configError{[]problem{{File: path, Message: "cannot read the configuration file: " + rootCause(err)}}}
	}
	return parseConfig(path, doc, os.LookupEnv)
}

// rootCause drops the operation and the path from a file error: the message
// that holds it names them already.
func rootCause(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// parseConfig is loadConfig on bytes in memory. env looks up the variables that
// paths may use.
func parseConfig(file string, doc []byte, env func(string) (string, bool)) (config, error) {
	doc = bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf"))
	var tree map[string]any
	if _, err := toml.Decode(string(doc), &tree); err != nil {
		return config{}, &configError{[]problem{syntaxProblem(file, err)}}
	}
	d := decoder{file: file, lines: scanKeys(string(doc)), env: env, config: defaultConfig(), given: map[string]bool{}}
	d.config.file, d.config.lines = file, d.lines
	d.table("", tree)
	d.checkConfig()
	if len(d.problems) > 0 {
		sort.SliceStable(d.problems, func(i, j int) bool { return d.problems[i].Line < d.problems[j].Line })
		return config{}, &configError{d.problems}
	}
	return d.config, nil
}

func syntaxProblem(file string, err error) problem {
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return problem{File: file, Message: err.Error()}
	}
	return problem{File: file, Line: pe.Position.Line, Key: pe.LastKey, Message: pe.Message}
}

// decoder turns a parsed TOML document into a config and collects every problem.
type decoder struct {
	file     string
	lines    keyLines
	env      func(string) (string, bool)
	config   config
	given    map[string]bool // keys that the file sets
	problems []problem
}

func (d *decoder) problem(key, format string, args ...any) {
	d.problems = append(d.problems, problem{File: d.file, Line: d.lines.at(key), Key: key, Message: fmt.Sprintf(format, args...)})
}

// table reads the keys of one table; prefix is its name, "" for the document.
func (d *decoder) table(prefix string, tree map[string]any) {
	for _, name := range sortedKeys(tree) {
		key, value := name, tree[name]
		if prefix != "" {
			key = prefix + "." + name
		}
		sub, isTable := value.(map[string]any)
		switch spec, known := configKeys[key]; {
		case key == "route":
			d.routes(value)
		case known:
			d.given[key] = true
			if err := spec(d, value); err != nil {
				d.problem(key, "%v", err)
			}
		case configTables[key] && isTable:
			d.table(key, sub)
		case configTables[key]:
			d.problem(key, "must be a table; write [%s]", key)
		default:
			d.problem(key, "unknown %s%s", kindOfKey(isTable), suggestKey(key))
		}
	}
}

// routes reads the [[route]] tables.
func (d *decoder) routes(value any) {
	list, ok := tablesOf(value)
	if !ok {
		d.problem("route", "must be a list of tables; write [[route]]")
		return
	}
	for i, tree := range list {
		r := relay.Route{Stream: "*", Tenant: "*"}
		for _, name := range sortedKeys(tree) {
			key := fmt.Sprintf("route[%d].%s", i, name)
			spec, known := routeKeys[name]
			if !known {
				d.problem(key, "unknown key%s", suggestRouteKey(name))
				continue
			}
			d.given[key] = true
			if err := spec(&r, tree[name]); err != nil {
				d.problem(key, "%v", err)
			}
		}
		d.config.Routes = append(d.config.Routes, r)
	}
}

func tablesOf(value any) ([]map[string]any, bool) {
	switch list := value.(type) {
	case []map[string]any:
		return list, true
	case []any: // route = [{…}, {…}]
		tables := make([]map[string]any, len(list))
		for i, v := range list {
			t, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			tables[i] = t
		}
		return tables, true
	}
	return nil, false
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func kindOfKey(isTable bool) string {
	if isTable {
		return "table"
	}
	return "key"
}
