package jetstream

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbox-relay/relay/relay"
)

// link is the publisher's connection: at any time one nats.Conn, replaced
// where the library closes one for good. The library does that on errors that
// the server sends on a standing connection and that it does not know, such
// as a maximum payload that was lowered meanwhile.
type link struct {
	p     *Publisher
	nc    atomic.Pointer[nats.Conn]
	state atomic.Pointer[Unusable] // nil while usable
	cuts  atomic.Uint64            // TCP connections given up so far
	deaf  atomic.Pointer[Unusable] // the state that a refused inbox led to, else nil
	// refused is what the server said about the credentials before it closed
	// the connection, else nil.
	refused atomic.Pointer[Unusable]
	closed  atomic.Bool
	tried   chan struct{} // closed when the first attempt has ended
	first   sync.Once     // closes tried

	mu       sync.Mutex
	sub      *nats.Subscription
	subConn  *nats.Conn
	since    time.Time           // of the outage
	logged   map[relay.Code]bool // its reasons that the log has
	welcomed time.Time           // when the log had the last connection
	returns  int                 // connections in quick succession
}

func (l *link) init(p *Publisher) {
	l.p = p
	l.tried = make(chan struct{})
	l.since = time.Now()
	l.logged = make(map[relay.Code]bool)
	l.down(&Unusable{relay.CodeDisconnected, "not connected yet"})
}

func (l *link) usable() error {
	if l.closed.Load() {
		return ErrClosed
	}
	if why := l.state.Load(); why != nil {
		return why
	}
	return nil
}

func (l *link) conn() *nats.Conn   { return l.nc.Load() }
func (l *link) down(why *Unusable) { l.state.Store(why) }
func (l *link) firstAttemptEnded() { l.first.Do(func() { close(l.tried) }) }

// AwaitFirstAttempt waits until the first connection stands or has failed, or
// ctx ends. A relay that starts then does not take the time of the handshake
// for an outage.
func (p *Publisher) AwaitFirstAttempt(ctx context.Context) {
	select {
	case <-p.link.tried:
	case <-ctx.Done():
	}
}

// keep holds a connection until the publisher is closed.
func (l *link) keep() {
	defer l.p.ended.Done()
	for n := 1; ; n++ {
		began := time.Now()
		closed := make(chan struct{})
		nc, err := l.dial(func(*nats.Conn) { close(closed) })
		if err == nil {
			select {
			case <-closed:
			case <-l.p.stop:
				nc.Close()
				return
			}
			why := explain(nc.LastError())
			l.down(why)
			l.complain(why, "connection to NATS lost")
		} else {
			why := explain(err)
			l.down(why)
			l.complain(why, "cannot connect to NATS")
			l.firstAttemptEnded()
		}
		if time.Since(began) > time.Minute {
			n = 1
		}
		select {
		case <-time.After(reconnectDelay(l.p.o.Backoff, n)):
		case <-l.p.stop:
			return
		}
	}
}

// dial makes a connection; closed runs when the library gives it up.
func (l *link) dial(closed nats.ConnHandler) (*nats.Conn, error) {
	opts, err := l.p.o.natsOptions()
	if err != nil {
		return nil, err
	}
	nkey := ""
	if l.p.o.NKey != "" {
		nkey, _ = publicKey(l.p.o.NKey) // natsOptions has just read it
	}
	var self atomic.Pointer[nats.Conn]
	delay := func(n int) time.Duration {
		// The library keeps the error of a handshake to itself.
		if nc := self.Load(); nc != nil && nc.LastError() != nil {
			l.attemptFailed(nc, nkey, nc.LastError())
		}
		return reconnectDelay(l.p.o.Backoff, n)
	}
	opts = append(opts,
		nats.CustomReconnectDelay(delay),
		nats.SetCustomDialer(&dialer{l: l, d: net.Dialer{Timeout: connectTimeout}}),
		nats.ConnectHandler(l.up),
		nats.ReconnectHandler(l.up),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) { l.lost(cmp.Or(err, nc.LastError())) }),
		nats.ReconnectErrHandler(func(nc *nats.Conn, err error) { l.attemptFailed(nc, nkey, err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { l.p.asyncError(err) }),
		nats.ClosedHandler(closed),
	)
	urls := nats.DefaultURL
	if len(l.p.o.URLs) > 0 {
		urls = strings.Join(l.p.o.URLs, ",")
	}
	nc, err := nats.Connect(urls, opts...)
	if err != nil {
		return nil, err
	}
	self.Store(nc)
	l.nc.Store(nc)
	return nc, nil
}

// up runs when a connection stands, the first or another one.
func (l *link) up(nc *nats.Conn) {
	cuts := l.cuts.Load()
	if nc.Status() != nats.CONNECTED {
		return // it broke meanwhile; up runs again
	}
	l.nc.Store(nc)
	l.deaf.Store(nil)
	if err := l.listen(nc, listenOnce); err != nil {
		l.down(explain(err))
		return
	}
	l.state.Store(nil)
	if l.cuts.Load() != cuts {
		l.down(broken)
	}
	l.refused.Store(nil)
	l.welcome(nc, cuts)
	l.firstAttemptEnded()
	l.p.streams.kick()
}

// Of connections that follow each other within steady the log has the first
// few; then it waits for one that lasts.
const (
	steady      = 10 * time.Second
	quickReturn = 2
)

// welcome logs the end of an outage.
func (l *link) welcome(nc *nats.Conn, cuts uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil || l.cuts.Load() != cuts {
		return
	}
	since := time.Since(l.welcomed)
	if since >= steady {
		l.returns = 0
	}
	if l.returns++; l.returns > quickReturn+1 {
		time.AfterFunc(steady-since, func() { l.welcome(nc, cuts) })
		return
	}
	ev := l.p.log.Info().Str("server", nc.ConnectedUrlRedacted()).Str("name", nc.ConnectedServerName())
	if len(l.logged) > 0 {
		ev = ev.Dur("outage_ms", time.Since(l.since))
	}
	ev.Msg("connected to NATS")
	l.welcomed = time.Now()
	clear(l.logged)
}

type listening bool

const (
	listenOnce  listening = false
	listenAgain listening = true // give up a subscription that may have been refused
)

// listen subscribes to the answers. The library repeats it at reconnects.
func (l *link) listen(nc *nats.Conn, again listening) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subConn == nc {
		if again == listenOnce {
			return nil
		}
		_ = l.sub.Unsubscribe() // it may be gone already; the new one counts
	}
	sub, err := nc.Subscribe(l.p.inbox+"*", l.p.onAnswer)
	if err != nil {
		return err
	}
	l.sub, l.subConn = sub, nc
	return sub.SetPendingLimits(-1, -1)
}

var broken = &Unusable{relay.CodeDisconnected, "the connection to NATS broke"}

// cut runs under the library's lock at the moment when it gives up a TCP
// connection, before anything could be published to the next one.
func (l *link) cut() {
	l.cuts.Add(1)
	l.state.CompareAndSwap(nil, broken)
	l.p.failAll("the connection broke")
}

// lost says why the connection broke.
func (l *link) lost(err error) {
	why := explain(err)
	if refused := l.refused.Swap(nil); refused != nil {
		why = refused
	}
	l.state.CompareAndSwap(broken, why) // unless it is up again already
	l.mu.Lock()
	if len(l.logged) == 0 {
		l.since = time.Now()
	}
	l.mu.Unlock()
	l.complain(why, "connection to NATS lost")
}

// attemptFailed notes why no connection comes about.
func (l *link) attemptFailed(nc *nats.Conn, nkey string, err error) {
	why := explain(err)
	l.down(why)
	l.complain(why, "cannot connect to NATS")
	l.firstAttemptEnded()
	if why.Code == relay.CodeCredentials && nkey != "" {
		// The library signs with the seed as it is now, but presents the
		// public key it was given.
		if now, err := publicKey(l.p.o.NKey); err == nil && now != nkey {
			go nc.Close()
		}
	}
}

// complain logs an outage once, and again when its reason changes in kind.
func (l *link) complain(why *Unusable, msg string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged[why.Code] || l.closed.Load() {
		return
	}
	l.logged[why.Code] = true
	l.p.log.Warn().Str("code", string(why.Code)).Str("reason", why.Detail).Msg(msg)
}

// explain turns an error of the library into a reason. Such errors hold
// addresses, but no user information.
func explain(err error) *Unusable {
	var path *fs.PathError
	switch {
	case err == nil:
		return &Unusable{relay.CodeDisconnected, "the connection to NATS was closed"}
	case errors.Is(err, nats.ErrStaleConnection):
		return &Unusable{relay.CodeUnresponsive, "the server stopped answering pings"}
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return &Unusable{relay.CodeCredentials, "the server refuses the credentials: " + plain(err)}
	case errors.As(err, &path), errors.Is(err, nats.ErrNkeysNotSupported), errors.Is(err, nats.ErrTokenAlreadySet):
		return &Unusable{relay.CodeCredentials, plain(err)}
	case errors.Is(err, nats.ErrNoServers):
		return &Unusable{relay.CodeDisconnected, "no server of nats.urls can be reached"}
	}
	return &Unusable{relay.CodeDisconnected, plain(err)}
}

// plain is an error's text without the library's name.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "nats: ") }

// dialer makes the TCP connections and keeps an eye on them.
type dialer struct {
	l *link
	d net.Dialer
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.d.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, cut: sync.OnceFunc(d.l.cut)}, nil
}

// wire is one TCP connection.
type wire struct {
	net.Conn
	cut func()
}

// Write ends the connection when it fails: the library goes on after a write
// that timed out without sending a byte, and what was in its buffer is lost.
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if err != nil {
		w.Conn.Close()
	}
	return n, err
}

// Close is called by the library, under its lock, as soon as it gives the
// connection up.
func (w *wire) Close() error {
	w.cut()
	return w.Conn.Close()
}
