package jetstream

import (
	randtext "crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/outbox-relay/relay/relay"
)

const (
	defaultPublishTimeout = 5 * time.Second
	connectTimeout        = 5 * time.Second // one dial and handshake
	maxReconnectDelay     = 30 * time.Second
	pingsOutstanding      = 2
)

// Connect starts connecting and returns at once: a broker that is down is not
// an error, a bad option (unreadable file, bad URL) is. Every bad option is
// reported, by its key, without its secrets.
func Connect(o Options) (*Publisher, error) {
	if o.PublishTimeout <= 0 {
		o.PublishTimeout = defaultPublishTimeout
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Publisher{
		o:    o,
		log:  o.Log,
		stop: make(chan struct{}),
		encoder: encoder{
			structured: o.Structured, routing: o.RoutingHeaders, trace: o.TraceHeaders,
		},
	}
	prefix := o.InboxPrefix
	if prefix == "" {
		prefix = strings.TrimSuffix(nats.InboxPrefix, ".")
	}
	p.inbox = prefix + "." + randtext.Text() + "."
	p.link.init(p)
	p.health.init(p)
	p.streams.init()
	p.ended.Add(2)
	go p.link.keep()
	go p.watchStreams()
	return p, nil
}

// check reports what would keep the publisher from ever connecting.
func (o *Options) check() error {
	var errs []error
	fault := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("nats.%s: %s", key, fmt.Sprintf(format, args...)))
	}
	userInURL := false
	for i, raw := range o.URLs {
		u, ok := parseURL(raw)
		if !ok {
			fault(fmt.Sprintf("urls[%d]", i), "not a server address: use nats://HOST:PORT, tls://, ws:// or wss://")
			continue
		}
		userInURL = userInURL || u.User != nil
	}
	if ways := o.waysToAuthenticate(userInURL); len(ways) > 1 {
		errs = append(errs, fmt.Errorf("%s: keep one of these ways to authenticate", strings.Join(ways, " and ")))
	}
	if o.PasswordFile != "" && o.User == "" {
		fault("password_file", "needs nats.user")
	}
	if o.Domain != "" && o.APIPrefix != "" {
		fault("domain", "nats.api_prefix is set too: keep one")
	}
	for _, s := range []struct{ key, value string }{
		{"domain", o.Domain}, {"api_prefix", o.APIPrefix}, {"inbox_prefix", o.InboxPrefix},
	} {
		if s.value != "" && !isSubject(s.value) {
			fault(s.key, "%q is not a subject without wildcards", s.value)
		}
	}
	o.checkFiles(fault)
	return errors.Join(errs...)
}

// waysToAuthenticate names those that are set.
func (o *Options) waysToAuthenticate(userInURL bool) []string {
	var ways []string
	for _, w := range []struct {
		name string
		set  bool
	}{
		{"user information in nats.urls", userInURL},
		{"nats.creds", o.Creds != ""},
		{"nats.nkey", o.NKey != ""},
		{"nats.user", o.User != ""},
		{"nats.token_file", o.TokenFile != ""},
	} {
		if w.set {
			ways = append(ways, w.name)
		}
	}
	return ways
}

// checkFiles reads every file once.
func (o *Options) checkFiles(fault func(key, format string, args ...any)) {
	if o.Creds != "" {
		if err := checkCreds(o.Creds); err != nil {
			fault("creds", "%v", err)
		}
	}
	if o.NKey != "" {
		if _, err := publicKey(o.NKey); err != nil {
			fault("nkey", "%v", err)
		}
	}
	if o.PasswordFile != "" {
		if _, err := readSecret(o.PasswordFile); err != nil {
			fault("password_file", "%v", err)
		}
	}
	if o.TokenFile != "" {
		if _, err := readSecret(o.TokenFile); err != nil {
			fault("token_file", "%v", err)
		}
	}
	var probe nats.Options
	if o.TLS.CA != "" {
		if err := nats.RootCAs(o.TLS.CA)(&probe); err != nil {
			fault("tls.ca", "%v", err)
		}
	}
	switch {
	case o.TLS.Cert != "" && o.TLS.Key == "":
		fault("tls.key", "is missing beside nats.tls.cert")
	case o.TLS.Cert == "" && o.TLS.Key != "":
		fault("tls.cert", "is missing beside nats.tls.key")
	case o.TLS.Cert != "":
		if err := nats.ClientCert(o.TLS.Cert, o.TLS.Key)(&probe); err != nil {
			fault("tls.cert", "%v", err)
		}
	}
}

// natsOptions are the library's options for one connection. Reading a file can
// fail here although it could be read at first.
func (o *Options) natsOptions() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1),
		// A peer that has stopped reading holds a write, and with it the
		// library's lock, no longer than this.
		nats.FlusherTimeout(o.PublishTimeout),
		nats.PingInterval(min(max(o.PublishTimeout/2, time.Second), 2500*time.Millisecond)),
		nats.MaxPingsOutstanding(pingsOutstanding),
	}
	if o.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	if o.TLS.CA != "" {
		opts = append(opts, nats.RootCAs(o.TLS.CA))
	}
	if o.TLS.Cert != "" {
		opts = append(opts, nats.ClientCert(o.TLS.Cert, o.TLS.Key))
	}
	if o.TLS.HandshakeFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	auth, err := o.authOption()
	if err != nil {
		return nil, err
	}
	return append(opts, auth...), nil
}

// authOption reads its files when a connection is made, not before.
func (o *Options) authOption() ([]nats.Option, error) {
	switch {
	case o.Creds != "":
		return []nats.Option{nats.UserCredentials(o.Creds)}, nil
	case o.NKey != "":
		opt, err := nats.NkeyOptionFromSeed(o.NKey)
		return []nats.Option{opt}, err
	case o.User != "":
		return []nats.Option{nats.UserInfoHandler(func() (string, string) {
			return o.User, o.secretOrEmpty(o.PasswordFile)
		})}, nil
	case o.TokenFile != "":
		return []nats.Option{nats.TokenHandler(func() string { return o.secretOrEmpty(o.TokenFile) })}, nil
	}
	return nil, nil
}

// secretOrEmpty leaves it to the server to refuse an empty secret: the
// library's handlers have no other way to fail.
func (o *Options) secretOrEmpty(path string) string {
	if path == "" {
		return ""
	}
	secret, err := readSecret(path)
	if err != nil {
		o.Log.Warn().Err(err).Msg("cannot read a secret for NATS")
	}
	return secret
}

// reconnectDelay follows b for the nth round over all servers, n >= 1.
func reconnectDelay(b relay.Backoff, n int) time.Duration {
	initial, multiplier, limit := b.Initial, b.Multiplier, min(b.Max, maxReconnectDelay)
	if initial <= 0 {
		initial = time.Second
	}
	if multiplier < 1 {
		multiplier = 2
	}
	if limit <= 0 {
		limit = maxReconnectDelay
	}
	d := min(float64(initial)*math.Pow(multiplier, float64(n-1)), float64(limit))
	d *= 1 + b.Jitter*(2*rand.Float64()-1)
	return time.Duration(min(d, float64(maxReconnectDelay)))
}

// parseURL parses one server address, with or without a scheme. It gives no
// reason, for the library's reasons quote the address with its password.
func parseURL(raw string) (*url.URL, bool) {
	if !strings.Contains(raw, "://") {
		raw = "nats://" + raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return nil, false
	}
	switch u.Scheme {
	case "nats", "tls", "ws", "wss":
		return u, true
	}
	return nil, false
}

func checkCreds(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := nkeys.ParseDecoratedJWT(text); err != nil {
		return fmt.Errorf("%s holds no user JWT", path)
	}
	key, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return fmt.Errorf("%s holds no user seed", path)
	}
	key.Wipe()
	return nil
}

// publicKey is that of the user seed in a file.
func publicKey(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	key, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return "", fmt.Errorf("%s holds no nkey seed", path)
	}
	defer key.Wipe()
	public, err := key.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("%s holds no seed of a user", path)
	}
	return public, nil
}

func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}

// isSubject tells whether s is a literal subject.
func isSubject(s string) bool {
	if strings.ContainsAny(s, " \t\r\n*>") {
		return false
	}
	for _, token := range strings.Split(s, ".") {
		if token == "" {
			return false
		}
	}
	return true
}
