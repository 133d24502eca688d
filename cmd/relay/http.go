package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outbox-relay/relay/relay"
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
	snapshot := d.relay.Snapshot()
	list := append(troubles(snapshot, time.Now()), withoutStream(snapshot, d.publisher.Missing())...)
	if err := d.publisher.Usable(); err != nil && !snapshot.BreakerOpen { // the loop has not looked yet
		list = append(list, "broker unusable: "+err.Error())
	}
	if len(list) > 0 {
		answer(w, http.StatusServiceUnavailable, list...)
		return
	}
	answer(w, http.StatusOK, "ready")
}

// withoutStream are the routes behind which no stream was found, save those
// that an event has found out about already.
func withoutStream(s relay.Snapshot, missing []string) []string {
	var list []string
	for _, name := range missing {
		known := slices.ContainsFunc(s.Routes, func(r relay.RouteState) bool { return r.Name == name && r.Paused })
		if !known && !s.BreakerOpen {
			list = append(list, "route "+name+": no stream takes its subjects")
		}
	}
	return list
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
