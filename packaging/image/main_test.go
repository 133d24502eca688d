package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var testOptions = options{Version: "1.2.3", Revision: "abc", Created: time.Unix(1700000000, 0).UTC()}

func TestImageRunsTheRelayAsNobody(t *testing.T) {
	for _, img := range images(t, makeLayout(t)) {
		if err := validate.Image(img); err != nil {
			t.Error(err)
		}
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.User != "65532:65532" {
			t.Errorf("user %q", c.Config.User)
		}
		if got := c.Config.Entrypoint; len(got) != 1 || got[0] != "/usr/bin/relay" {
			t.Errorf("entrypoint %q", got)
		}
		if want := "binary for " + c.Architecture; string(files(t, img)["usr/bin/relay"].data) != want {
			t.Errorf("/usr/bin/relay is not the %s", want)
		}
		state := files(t, img)["var/lib/relay/"].header
		if state.Mode != 0o2770 || state.Uid != 65532 || state.Gid != 65532 {
			t.Errorf("/var/lib/relay: mode %o, %d:%d", state.Mode, state.Uid, state.Gid)
		}
	}
}

func TestImageTrustsPublicAuthorities(t *testing.T) {
	pem := files(t, images(t, makeLayout(t))[0])["etc/ssl/certs/ca-certificates.crt"].data
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		t.Error("no certificate in ca-certificates.crt")
	}
	if n := bytes.Count(pem, []byte("BEGIN CERTIFICATE")); n < 50 {
		t.Errorf("only %d certificates", n)
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	first, second := makeLayout(t), makeLayout(t)
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("two runs differ")
	}
}

func TestWrongArguments(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"no binary", nil},
		{"no architecture", []string{"relay"}},
		{"binary is missing", []string{"amd64=/does/not/exist"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.tar")
			if err := build(out, testOptions, c.args); err == nil {
				t.Error("no error")
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("a file was written")
			}
		})
	}
}

// makeLayout builds an image of two pretended binaries and returns the tar file.
func makeLayout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var args []string
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, arch)
		if err := os.WriteFile(path, []byte("binary for "+arch), 0o755); err != nil {
			t.Fatal(err)
		}
		args = append(args, arch+"="+path)
	}
	out := filepath.Join(dir, "out.tar")
	if err := build(out, testOptions, args); err != nil {
		t.Fatal(err)
	}
	return out
}

// images opens the layout in the tar file as another tool would.
func images(t *testing.T, file string) []v1.Image {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, e := range untar(t, f) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, e.data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Manifests) != 1 || m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("manifests: %v", m.Manifests)
	}
	index, err := root.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var imgs []v1.Image
	for _, d := range m.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		imgs = append(imgs, img)
	}
	if len(imgs) != 2 {
		t.Fatalf("%d images", len(imgs))
	}
	return imgs
}

type entry struct {
	header *tar.Header
	data   []byte
}

// files are the entries of the only layer of img.
func files(t *testing.T, img v1.Image) map[string]entry {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return untar(t, r)
}

func untar(t *testing.T, r io.Reader) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = entry{h, data}
	}
}
