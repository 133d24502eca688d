//go:build unix

package harness

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/integration/natstest"
)

// FreeAddress is a loopback address for [Config.Metrics].
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(tb))
}

// Get reads path from the listener at address. Code 0 is no answer.
func Get(address, path string) (code int, body string) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// WaitReady waits until /readyz at address says 200.
func WaitReady(tb testing.TB, address string) {
	tb.Helper()
	Eventually(tb, Patience, "the relay is ready", func() (bool, string) {
		code, body := Get(address, "/readyz")
		return code == http.StatusOK, fmt.Sprintf("%d %s", code, body)
	})
}

// Metric is the sum over all labels of a counter or gauge at address; 0 while
// it has no samples.
func Metric(tb testing.TB, address, name string) float64 {
	tb.Helper()
	code, body := Get(address, "/metrics")
	if code != http.StatusOK {
		tb.Fatalf("harness: /metrics: %d %s", code, body)
	}
	var sum float64
	for line := range strings.Lines(body) {
		rest, found := strings.CutPrefix(line, name)
		if !found || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' '):]), 64)
		if err != nil {
			tb.Fatalf("harness: metric %q: %v", line, err)
		}
		sum += value
	}
	return sum
}
