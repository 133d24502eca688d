package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/outbox-relay/relay/relay"
)

// checkConfig finds the mistakes that no single value shows. A key that is
// wrong by itself is left out: its own problem says enough.
func (d *decoder) checkConfig() {
	c := &d.config
	if c.Outbox.Path == "" && !d.failed("outbox.path") {
		d.problem("outbox.path", "is required: the path of the outbox database")
	}
	if c.Relay.Lease < 2*c.NATS.PublishTimeout && !d.failed("relay.lease") && !d.failed("nats.publish_timeout") {
		d.problem(d.firstGiven("relay.lease", "nats.publish_timeout"), "lease %s must be at least twice publish_timeout %s",
			shortDuration(c.Relay.Lease), shortDuration(c.NATS.PublishTimeout))
	}
	if b := c.Relay.Backoff; b.Max < b.Initial && !d.failed("relay.backoff.max") && !d.failed("relay.backoff.initial") {
		d.problem(d.firstGiven("relay.backoff.max", "relay.backoff.initial"), "max %s is less than initial %s",
			shortDuration(b.Max), shortDuration(b.Initial))
	}
	if err := checkListen(c.Metrics.Listen); err != nil {
		d.problem("metrics.listen", "%v", err)
	}
	d.checkNATS()
	d.checkRoutes()
}

func (d *decoder) failed(key string) bool {
	for _, p := range d.problems {
		if p.Key == key {
			return true
		}
	}
	return false
}

// firstGiven is the first of keys that the file sets, so that the problem gets
// a line to look at.
func (d *decoder) firstGiven(keys ...string) string {
	for _, k := range keys {
		if d.given[k] {
			return k
		}
	}
	return keys[0]
}

func checkListen(listen string) error {
	if listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf(`%q is no address; write host:port, such as "127.0.0.1:9464"`, listen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q is outside 0..65535", port)
	}
	return nil
}

func (d *decoder) checkNATS() {
	n := &d.config.NATS
	ways := 0
	for _, set := range []bool{n.Creds != "", n.NKey != "", n.User != "" || n.PasswordFile != "", n.TokenFile != ""} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		d.problem(d.firstGiven("nats.creds", "nats.nkey", "nats.user", "nats.token_file"),
			"use one of creds, nkey, user with password_file, and token_file")
	}
	if (n.User == "") != (n.PasswordFile == "") && !d.failed("nats.password_file") {
		d.problem(d.firstGiven("nats.user", "nats.password_file"), "user and password_file go together")
	}
	if (n.TLS.Cert == "") != (n.TLS.Key == "") && !d.failed("nats.tls.cert") && !d.failed("nats.tls.key") {
		d.problem(d.firstGiven("nats.tls.cert", "nats.tls.key"), "cert and key go together")
	}
	if n.Domain != "" && n.APIPrefix != "" {
		d.problem("nats.api_prefix", "use domain or api_prefix, not both")
	}
	if strings.ContainsAny(n.Domain, ".*> ") {
		d.problem("nats.domain", "must be one subject token, without dots, blanks, * and >")
	}
	for key, prefix := range map[string]string{"nats.api_prefix": n.APIPrefix, "nats.inbox_prefix": n.InboxPrefix} {
		if err := checkSubjectPrefix(prefix); err != nil {
			d.problem(key, "%v", err)
		}
	}
}

// checkSubjectPrefix accepts "" and a subject without wildcards; one dot at the
// end is allowed.
func checkSubjectPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	for _, token := range strings.Split(strings.TrimSuffix(prefix, "."), ".") {
		if token == "" || strings.ContainsAny(token, " *>") {
			return fmt.Errorf("%q is no subject prefix: it has an empty token, a blank or a wildcard", prefix)
		}
	}
	return nil
}

// urlsKey reads the server list. No message repeats a URL with its user part.
func urlsKey(d *decoder, value any) error {
	list, ok := value.([]any)
	if !ok {
		return fmt.Errorf(`must be an array of strings such as ["nats://127.0.0.1:4222"], not %s`, tomlType(value))
	}
	if len(list) == 0 {
		return errors.New("must name at least one server")
	}
	urls, sockets := make([]string, len(list)), 0
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			d.problem("nats.urls", "entry %d must be a string, not %s", i+1, tomlType(v))
			continue
		}
		u, err := checkURL(s)
		if err != nil {
			d.problem("nats.urls", "entry %d %v", i+1, err)
			continue
		}
		if u.Scheme == "ws" || u.Scheme == "wss" {
			sockets++
		}
		urls[i] = s
	}
	if d.failed("nats.urls") {
		return nil
	}
	if sockets != 0 && sockets != len(urls) {
		return errors.New("mixes ws:// or wss:// with other schemes")
	}
	d.config.NATS.URLs = urls
	return nil
}

func checkURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("is no URL; write nats://host:port or tls://host:port")
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
	default:
		return nil, errors.New("must begin with nats://, tls://, ws:// or wss://")
	}
	if u.Hostname() == "" {
		return nil, errors.New("names no host")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("has port %q, outside 1..65535", p)
		}
	}
	if strings.ContainsAny(u.Host, " ,") {
		return nil, errors.New("holds more than one server; use one entry for each")
	}
	return u, nil
}

func (d *decoder) checkRoutes() {
	_, err := relay.NewRoutes(d.config.Routes)
	for _, fault := range routeFaults(err) {
		key := fmt.Sprintf("route[%d].%s", fault.Index, fault.Key)
		switch {
		case d.failed(key):
		case fault.Key == "subject" && !d.given[key]:
			d.problem(key, "is required: the subject template")
		default:
			d.problem(key, "%s", fault.Detail)
		}
	}
}

// routeFaults are the faults joined in what relay.NewRoutes returns.
func routeFaults(err error) []*relay.RouteError {
	var fault *relay.RouteError
	if errors.As(err, &fault) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			var list []*relay.RouteError
			for _, e := range joined.Unwrap() {
				list = append(list, routeFaults(e)...)
			}
			return list
		}
		return []*relay.RouteError{fault}
	}
	return nil
}

// requireBroker is what a connection to the broker needs beyond a valid file.
func (c *config) requireBroker() error {
	if len(c.unset) == 0 {
		return nil
	}
	return &configError{c.unset}
}

// requireRoutes is what `relay run` needs beyond a valid file.
func (c *config) requireRoutes() error {
	if len(c.Routes) > 0 {
		return nil
	}
	return &configError{[]problem{{File: c.file, Key: "route", Message: "at least one [[route]] with a subject is required"}}}
}
