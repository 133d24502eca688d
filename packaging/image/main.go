// Command image writes an OCI image layout, as a tar file, that holds static
// relay binaries for several architectures and nothing else but the root
// certificates. It needs neither a container engine nor a registry, and gives
// the same bytes for the same input.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the numeric user and group that the relay runs as; numeric, because
// the image has no passwd file.
const user = "65532:65532"

func main() {
	out := flag.String("o", "relay.oci.tar", "write the layout to this `file`")
	version := flag.String("version", "", "version label")
	revision := flag.String("revision", "", "commit label")
	epoch := flag.Int64("epoch", 0, "every time in the image, in Unix `seconds`")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image [flags] ARCH=BINARY...")
		flag.PrintDefaults()
	}
	flag.Parse()
	o := options{Version: *version, Revision: *revision, Created: time.Unix(*epoch, 0).UTC()}
	if err := build(*out, o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type options struct {
	Version, Revision string
	Created           time.Time
}

// build writes an index with one image for each ARCH=BINARY to the tar file out.
func build(out string, o options, binaries []string) error {
	if len(binaries) == 0 {
		return errors.New("no ARCH=BINARY given")
	}
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		arch, path, ok := strings.Cut(b, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=BINARY", b)
		}
		img, err := image(arch, path, o)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	path, err := layout.Write(dir, root)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": o.Version}
	if err := path.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	return archive(out, dir, o.Created)
}

// image is the image of one architecture.
func image(arch, binary string, o options) (v1.Image, error) {
	content, err := layer(binary, o.Created)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:   l,
		History: v1.History{Created: v1.Time{Time: o.Created}, CreatedBy: "relay " + o.Version},
	})
	if err != nil {
		return nil, err
	}
	return configure(img, arch, o)
}

// configure completes the configuration of img.
func configure(img v1.Image, arch string, o options) (v1.Image, error) {
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", arch
	c.Created = v1.Time{Time: o.Created}
	c.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/usr/bin/relay"},
		Cmd:        []string{"run", "--config", "/etc/relay/relay.toml"},
		WorkingDir: "/var/lib/relay",
		StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "relay",
			"org.opencontainers.image.version":  o.Version,
			"org.opencontainers.image.revision": o.Revision,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, c)
}

// layer is the file system: the binary, the root certificates, and directories
// for the configuration, the database and SQLite's temporary files.
func layer(binary string, t time.Time) ([]byte, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range []struct {
		name string
		mode int64
		id   int
		data []byte
	}{
		{"etc/", 0o755, 0, nil},
		{"etc/relay/", 0o755, 0, nil},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, roots()},
		{"tmp/", 0o1777, 0, nil},
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{"usr/bin/relay", 0o755, 0, program},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/relay/", 0o2770, 65532, nil},
	} {
		h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.id, Gid: e.id, ModTime: t, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// roots are the certificate authorities that the Go project distributes, in PEM.
func roots() []byte {
	var buf bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint != nil {
			continue // PEM cannot say what its certificates are good for
		}
		pem.Encode(&buf, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // a buffer takes everything
	}
	return buf.Bytes()
}

// archive writes the files below dir to the tar file out, in name order.
func archive(out, dir string, t time.Time) (err error) {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, ModTime: t, Size: int64(len(data)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	return errors.Join(err, w.Close())
}
