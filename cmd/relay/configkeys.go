package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outbox-relay/relay/relay"
)

// keyReader reads a key's value into the decoder's config.
type keyReader func(d *decoder, value any) error

// Bounds of durations. Everything on the database's clock is in whole
// milliseconds.
const (
	tick     = time.Millisecond
	day      = 24 * time.Hour
	maxAge   = 3650 * day
	maxDelay = 30 * day
)

// configKeys has every key outside [[route]]. config.example.toml states the
// same bounds.
var configKeys = map[string]keyReader{
	"outbox.path":         pathKey(func(c *config) *string { return &c.Outbox.Path }),
	"outbox.tenant":       textKey(func(c *config) *string { return &c.Outbox.Tenant }, 255),
	"outbox.worker":       textKey(func(c *config) *string { return &c.Outbox.Worker }, 255),
	"outbox.busy_timeout": durationKey(func(c *config) *time.Duration { return &c.Outbox.BusyTimeout }, tick, 10*time.Minute),
	"outbox.busy_retries": intKey(func(c *config) *int { return &c.Outbox.BusyRetries }, 0, 100),
	"outbox.synchronous":  choiceKey(func(c *config) *string { return &c.Outbox.Synchronous }, "normal", "full", "extra"),
	"outbox.max_event":    sizeKey(func(c *config) *int64 { return &c.Outbox.MaxEvent }, 1<<10, 64<<20),

	"relay.batch":           intKey(func(c *config) *int { return &c.Relay.Batch }, 1, 1000),
	"relay.in_flight":       intKey(func(c *config) *int { return &c.Relay.InFlight }, 1, 65536),
	"relay.in_flight_bytes": sizeKey(func(c *config) *int64 { return &c.Relay.InFlightBytes }, 64<<10, 16<<30),
	"relay.lease":           durationKey(func(c *config) *time.Duration { return &c.Relay.Lease }, 20*tick, day),
	"relay.poll":            durationKey(func(c *config) *time.Duration { return &c.Relay.Poll }, tick, 10*time.Minute),
	"relay.drain":           durationKey(func(c *config) *time.Duration { return &c.Relay.Drain }, tick, time.Hour),
	"relay.max_attempts":    intKey(func(c *config) *int { return &c.Relay.MaxAttempts }, 0, 1_000_000),
	"relay.unrouted":        choiceKey(func(c *config) *string { return &c.Relay.Unrouted }, "retry", "quarantine"),

	"relay.backoff.initial":    durationKey(func(c *config) *time.Duration { return &c.Relay.Backoff.Initial }, tick, day),
	"relay.backoff.max":        durationKey(func(c *config) *time.Duration { return &c.Relay.Backoff.Max }, tick, maxDelay),
	"relay.backoff.multiplier": floatKey(func(c *config) *float64 { return &c.Relay.Backoff.Multiplier }, 1, 100),
	"relay.backoff.jitter":     floatKey(func(c *config) *float64 { return &c.Relay.Backoff.Jitter }, 0, 1),

	"nats.urls":            urlsKey,
	"nats.name":            textKey(func(c *config) *string { return &c.NATS.Name }, 255),
	"nats.creds":           brokerPathKey("nats.creds", func(c *config) *string { return &c.NATS.Creds }),
	"nats.nkey":            brokerPathKey("nats.nkey", func(c *config) *string { return &c.NATS.NKey }),
	"nats.user":            textKey(func(c *config) *string { return &c.NATS.User }, 255),
	"nats.password_file":   brokerPathKey("nats.password_file", func(c *config) *string { return &c.NATS.PasswordFile }),
	"nats.token_file":      brokerPathKey("nats.token_file", func(c *config) *string { return &c.NATS.TokenFile }),
	"nats.publish_timeout": durationKey(func(c *config) *time.Duration { return &c.NATS.PublishTimeout }, 10*tick, 10*time.Minute),
	"nats.domain":          textKey(func(c *config) *string { return &c.NATS.Domain }, 255),
	"nats.api_prefix":      textKey(func(c *config) *string { return &c.NATS.APIPrefix }, 255),
	"nats.inbox_prefix":    textKey(func(c *config) *string { return &c.NATS.InboxPrefix }, 255),
	"nats.mode":            choiceKey(func(c *config) *string { return &c.NATS.Mode }, "binary", "structured"),
	"nats.msg_id_scope":    choiceKey(func(c *config) *string { return &c.NATS.MsgIDScope }, "tenant", "isolated"),
	"nats.routing_headers": boolKey(func(c *config) *bool { return &c.NATS.RoutingHeaders }),
	"nats.trace_headers":   boolKey(func(c *config) *bool { return &c.NATS.TraceHeaders }),

	"nats.tls.ca":              brokerPathKey("nats.tls.ca", func(c *config) *string { return &c.NATS.TLS.CA }),
	"nats.tls.cert":            brokerPathKey("nats.tls.cert", func(c *config) *string { return &c.NATS.TLS.Cert }),
	"nats.tls.key":             brokerPathKey("nats.tls.key", func(c *config) *string { return &c.NATS.TLS.Key }),
	"nats.tls.handshake_first": boolKey(func(c *config) *bool { return &c.NATS.TLS.HandshakeFirst }),

	"retention.delivered":   ageKey(func(c *config) *time.Duration { return &c.Retention.Delivered }),
	"retention.quarantined": ageKey(func(c *config) *time.Duration { return &c.Retention.Quarantined }),
	"retention.every":       durationKey(func(c *config) *time.Duration { return &c.Retention.Every }, 100*tick, day),
	"retention.batch":       intKey(func(c *config) *int { return &c.Retention.Batch }, 1, 1000),

	"metrics.listen": textKey(func(c *config) *string { return &c.Metrics.Listen }, 255),
	"log.level":      choiceKey(func(c *config) *string { return &c.Log.Level }, "trace", "debug", "info", "warn", "error"),
	"log.format":     choiceKey(func(c *config) *string { return &c.Log.Format }, "json", "console"),
}

// routeKeys has the keys of a [[route]].
var routeKeys = map[string]func(r *relay.Route, value any) error{
	"stream":        routeText(func(r *relay.Route) *string { return &r.Stream }),
	"tenant":        routeText(func(r *relay.Route) *string { return &r.Tenant }),
	"subject":       routeText(func(r *relay.Route) *string { return &r.Subject }),
	"expect_stream": routeText(func(r *relay.Route) *string { return &r.ExpectStream }),
}

// configTables has the tables that hold those keys.
var configTables = map[string]bool{
	"outbox": true, "relay": true, "relay.backoff": true, "nats": true, "nats.tls": true,
	"retention": true, "metrics": true, "log": true,
}

// suggestKey says which known key was meant, if one is near.
func suggestKey(key string) string {
	table, name := "", key
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		table, name = key[:i], key[i+1:]
	}
	for _, known := range sortedKeys(configKeys) {
		if strings.HasSuffix(known, "."+name) {
			return fmt.Sprintf("; %s belongs in [%s]", name, strings.TrimSuffix(known, "."+name))
		}
	}
	for _, known := range sortedKeys(configKeys) {
		if i := strings.LastIndexByte(known, '.'); known[:i] == table && editDistance(name, known[i+1:]) <= 2 {
			return fmt.Sprintf("; did you mean %s?", known[i+1:])
		}
	}
	for _, known := range sortedKeys(configTables) {
		if editDistance(key, known) <= 2 {
			return fmt.Sprintf("; did you mean [%s]?", known)
		}
	}
	return ""
}

func suggestRouteKey(name string) string {
	for _, known := range sortedKeys(routeKeys) {
		if editDistance(name, known) <= 2 {
			return fmt.Sprintf("; did you mean %s?", known)
		}
	}
	return ""
}

// editDistance counts the insertions, deletions and substitutions between a and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// tomlType names a value's type as TOML calls it.
func tomlType(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case time.Time:
		return "a date or time"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return "a list of tables"
}

func stringValue(value any, want string) (string, error) {
	s, ok := value.(string)
	if !ok {
		return "", fmt.Errorf("must be %s in quotes, not %s", want, tomlType(value))
	}
	return s, nil
}

// parseDuration reads a Go duration of whole milliseconds within low..high.
func parseDuration(s string, low, high time.Duration) (time.Duration, error) {
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf(`%q is no duration; write numbers with the units ms, s, m or h, such as "500ms", "30s" or "1h30m"`, s)
	case v < low || v > high:
		return 0, fmt.Errorf("%q is outside %v..%v", s, shortDuration(low), shortDuration(high))
	case v%time.Millisecond != 0:
		return 0, fmt.Errorf("%q is finer than a millisecond", s)
	}
	return v, nil
}

// shortDuration is d without zero units at its end: 24h, not 24h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func durationKey(field func(*config) *time.Duration, low, high time.Duration) keyReader {
	return func(d *decoder, value any) error {
		s, err := stringValue(value, `a duration such as "30s"`)
		if err != nil {
			return err
		}
		v, err := parseDuration(s, low, high)
		if err == nil {
			*field(&d.config) = v
		}
		return err
	}
}

// ageKey reads a duration where "" means off.
func ageKey(field func(*config) *time.Duration) keyReader {
	read := durationKey(field, tick, maxAge)
	return func(d *decoder, value any) error {
		if value == "" {
			*field(&d.config) = 0
			return nil
		}
		err := read(d, value)
		if err != nil {
			return fmt.Errorf(`%w; "" turns it off`, err)
		}
		return nil
	}
}

func intKey(field func(*config) *int, low, high int) keyReader {
	return func(d *decoder, value any) error {
		v, ok := value.(int64)
		if !ok {
			return fmt.Errorf("must be an integer (%d..%d), not %s", low, high, tomlType(value))
		}
		if v < int64(low) || v > int64(high) {
			return fmt.Errorf("%d is outside %d..%d", v, low, high)
		}
		*field(&d.config) = int(v)
		return nil
	}
}

func floatKey(field func(*config) *float64, low, high float64) keyReader {
	return func(d *decoder, value any) error {
		v, ok := value.(float64)
		if i, isInt := value.(int64); isInt {
			v, ok = float64(i), true
		}
		if !ok {
			return fmt.Errorf("must be a number (%g..%g), not %s", low, high, tomlType(value))
		}
		if math.IsNaN(v) || v < low || v > high {
			return fmt.Errorf("%g is outside %g..%g", v, low, high)
		}
		*field(&d.config) = v
		return nil
	}
}

func sizeKey(field func(*config) *int64, low, high int64) keyReader {
	return func(d *decoder, value any) error {
		s, err := stringValue(value, `a size such as "64KiB"`)
		if err != nil {
			return err
		}
		v, err := humanize.ParseBytes(s)
		if err != nil || s == "" {
			return fmt.Errorf(`%q is no size; write a number with a unit, such as "64KiB" or "8MiB"`, s)
		}
		if v < uint64(low) || v > uint64(high) {
			return fmt.Errorf("%q is outside %s..%s", s, sizeText(low), sizeText(high))
		}
		*field(&d.config) = int64(v)
		return nil
	}
}

func sizeText(n int64) string { return strings.ReplaceAll(humanize.IBytes(uint64(n)), " ", "") }

func boolKey(field func(*config) *bool) keyReader {
	return func(d *decoder, value any) error {
		v, ok := value.(bool)
		if !ok {
			return fmt.Errorf("must be true or false, not %s", tomlType(value))
		}
		*field(&d.config) = v
		return nil
	}
}

func choiceKey(field func(*config) *string, choices ...string) keyReader {
	return func(d *decoder, value any) error {
		list := strings.Join(choices, ", ")
		s, err := stringValue(value, "one of "+list)
		if err != nil {
			return err
		}
		for _, c := range choices {
			if s == c {
				*field(&d.config) = s
				return nil
			}
		}
		return fmt.Errorf("%q is none of %s", s, list)
	}
}

func textKey(field func(*config) *string, limit int) keyReader {
	return func(d *decoder, value any) error {
		s, err := plainText(value, limit)
		if err == nil {
			*field(&d.config) = s
		}
		return err
	}
}

func routeText(field func(*relay.Route) *string) func(*relay.Route, any) error {
	return func(r *relay.Route, value any) error {
		s, err := plainText(value, 1024)
		if err == nil {
			*field(r) = s
		}
		return err
	}
}

func plainText(value any, limit int) (string, error) {
	s, err := stringValue(value, "a string")
	if err != nil {
		return "", err
	}
	if len(s) > limit {
		return "", fmt.Errorf("%d bytes are more than %d", len(s), limit)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f && r <= 0x9f }) {
		return "", errors.New("holds a control character")
	}
	return s, nil
}

// pathKey reads a path; ${NAME} stands for the environment variable.
func pathKey(field func(*config) *string) keyReader {
	return func(d *decoder, value any) error {
		s, err := plainText(value, 4096)
		if err != nil {
			return err
		}
		s, err = expandPath(s, d.env)
		if err == nil {
			*field(&d.config) = s
		}
		return err
	}
}

// brokerPathKey is pathKey for a file that only a connection to the broker needs. A
// variable that is not set is a mistake only there, so that the other commands work by
// hand with the file of a service, whose manager sets CREDENTIALS_DIRECTORY.
func brokerPathKey(key string, field func(*config) *string) keyReader {
	read := pathKey(field)
	return func(d *decoder, value any) error {
		err := read(d, value)
		if !errors.Is(err, errUnset) {
			return err
		}
		d.config.unset = append(d.config.unset, problem{File: d.file, Line: d.lines.at(key), Key: key, Message: err.Error()})
		*field(&d.config), _ = value.(string) // present, for the checks of what belongs together
		return nil
	}
}

// errUnset reports a path with an environment variable that has no value.
var errUnset = errors.New("is not set")

func expandPath(s string, env func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || name == "" {
			return "", errors.New("${ without a variable name and }")
		}
		value, set := env(name)
		if !set || value == "" {
			return "", fmt.Errorf("the environment variable %s %w", name, errUnset)
		}
		out.WriteString(value)
		s = after
	}
}
