package jetstream_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/relay/jetstream"
)

// Credentials that expire on a standing connection, and a new file.
func TestCredsExpireAndAreRenewed(t *testing.T) {
	o := newOperator(t)
	s := natstest.Start(t, natstest.Options{NoJetStream: true, Config: o.config()})
	creds := filepath.Join(t.TempDir(), "relay.creds")
	o.writeUser(t, creds, time.Now().Add(3*time.Second))
	r := connect(t, s, func(o *jetstream.Options) { o.Creds = creds })
	eventually(t, "expiry", func() bool {
		err := r.Usable()
		return err != nil && strings.HasPrefix(err.Error(), "credentials: ")
	})
	// The server lets the user in and throws it out again for a while.
	if n := len(r.log.lines("warn", "")); n > 3 {
		t.Errorf("%d warnings:\n%s", n, r.log)
	}
	o.writeUser(t, creds, time.Time{})
	r.waitUsable()
	if strings.Contains(r.log.String(), "SU") && strings.Contains(r.log.String(), "eyJ") {
		t.Error("the credentials are in the log")
	}
}

// operator is a decentralised set-up with one account.
type operator struct {
	key, account nkeys.KeyPair
	jwt          string
	accountJWT   string
	accountKey   string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{}
	var err error
	if o.key, err = nkeys.CreateOperator(); err != nil {
		t.Fatal(err)
	}
	if o.account, err = nkeys.CreateAccount(); err != nil {
		t.Fatal(err)
	}
	public, _ := o.key.PublicKey()
	o.accountKey, _ = o.account.PublicKey()
	if o.jwt, err = jwt.NewOperatorClaims(public).Encode(o.key); err != nil {
		t.Fatal(err)
	}
	if o.accountJWT, err = jwt.NewAccountClaims(o.accountKey).Encode(o.key); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *operator) config() string {
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload: {%s: %s}", o.jwt, o.accountKey, o.accountJWT)
}

func (o *operator) writeUser(t *testing.T, path string, expires time.Time) {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	claims := jwt.NewUserClaims(public)
	if !expires.IsZero() {
		claims.Expires = expires.Unix()
	}
	token, err := claims.Encode(o.account)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := authority(t, filepath.Join(dir, "ca.pem"))
	issue(t, ca, caKey, dir, "server")
	issue(t, ca, caKey, dir, "client")
	otherCA, otherKey := authority(t, filepath.Join(dir, "other.pem"))
	config := fmt.Sprintf("tls: {cert_file: %q, key_file: %q, ca_file: %q, verify: true",
		dir+"/server.pem", dir+"/server.key", dir+"/ca.pem")
	trust := func(o *jetstream.Options) {
		o.TLS = jetstream.TLS{CA: dir + "/ca.pem", Cert: dir + "/client.pem", Key: dir + "/client.key"}
	}
	t.Run("certificates of both sides", func(t *testing.T) {
		connect(t, natstest.Start(t, natstest.Options{Config: config + "}"}), trust)
	})
	t.Run("handshake first", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{Config: config + ", handshake_first: true}"})
		connect(t, s, func(o *jetstream.Options) { trust(o); o.TLS.HandshakeFirst = true })
	})
	t.Run("a server of another authority", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{Config: config + "}"})
		r := dial(t, s, func(o *jetstream.Options) { trust(o); o.TLS.CA = dir + "/other.pem" })
		eventually(t, "reason", func() bool { return strings.Contains(r.Usable().Error(), "x509") })
	})
	t.Run("no fall back to plain text", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{})
		r := dial(t, s, trust)
		eventually(t, "reason", func() bool { return strings.Contains(r.Usable().Error(), "secure") })
	})
	t.Run("a certificate renewed on disk", func(t *testing.T) {
		s := natstest.Start(t, natstest.Options{Config: config + "}"})
		issue(t, otherCA, otherKey, dir, "client")
		r := dial(t, s, trust)
		eventually(t, "refusal", func() bool { return len(r.log.lines("warn", "")) > 0 })
		issue(t, ca, caKey, dir, "client")
		r.waitUsable()
	})
}

func authority(t *testing.T, path string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: path},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	writeCert(t, path, cert, cert, key, key)
	return cert, key
}

func issue(t *testing.T, ca *x509.Certificate, caKey *ecdsa.PrivateKey, dir, name string) {
	t.Helper()
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	writeCert(t, filepath.Join(dir, name+".pem"), cert, ca, key, caKey)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, name+".key"), "EC PRIVATE KEY", der)
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeCert(t *testing.T, path string, cert, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, path, "CERTIFICATE", der)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
