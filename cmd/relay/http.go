package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpServer serves /metrics, /healthz, /readyz and the status page, read-only.
func (d *daemon) httpServer() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", d.healthz)
	mux.HandleFunc("GET /readyz", d.readyz)
	mux.Handle("GET /{$}", d.statusPage())
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// healthz is about the loop alone: restarting a relay whose broker is down
// helps nobody.
func (d *daemon) healthz(w http.ResponseWriter, _ *http.Request) {
	progress := d.relay.Snapshot().Progress
	if age := time.Since(progress); age > stalledAfter {
		answer(w, http.StatusServiceUnavailable, fmt.Sprintf("the loop made no progress for %s", roughDuration(age)))
		return
	}
	answer(w, http.StatusOK, "ok")
}

func (d *daemon) readyz(w http.ResponseWriter, _ *http.Request) {
	if list := troubles(d.relay.Snapshot(), time.Now()); len(list) > 0 {
		answer(w, http.StatusServiceUnavailable, list...)
		return
	}
	answer(w, http.StatusOK, "ready")
}

func answer(w http.ResponseWriter, code int, lines ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	for i, line := range lines {
		lines[i] = oneLine(line)
	}
	fmt.Fprintln(w, strings.Join(lines, "\n")) // the client may be gone
}
