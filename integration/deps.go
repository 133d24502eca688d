//go:build deps

// Package integration: temporary list of the modules in use while the parts are built.
package integration

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/Shopify/toxiproxy/v2"
	_ "github.com/Shopify/toxiproxy/v2/client"
	_ "github.com/cenkalti/backoff/v4"
	_ "github.com/chromedp/chromedp"
	_ "github.com/cloudevents/sdk-go/v2/binding"
	_ "github.com/cloudevents/sdk-go/v2/event"
	_ "github.com/coreos/go-systemd/v22/daemon"
	_ "github.com/dustin/go-humanize"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/nats-io/jwt/v2"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/nats-io/nkeys"
	_ "github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/cobra/doc"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
