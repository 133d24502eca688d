package main

import (
	"net/http"
	"time"
)

// statusPage is the page at / of the metrics listener.
func (d *daemon) statusPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := d.relay.Snapshot()
		text := statusText(s, "")
		answer(w, http.StatusOK, append([]string{text}, troubles(s, time.Now())...)...)
	})
}
