package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/outbox-relay/relay/outbox"
	"github.com/outbox-relay/relay/relay"
)

// busySnapshot is a relay in trouble, with names that try to break out of the page.
func busySnapshot(now time.Time) relay.Snapshot {
	s := relay.Snapshot{
		Progress: now, BreakerOpen: true, BreakerSince: now.Add(-time.Minute), BreakerWhy: "disconnected: refused",
		Routes: []relay.RouteState{
			{Name: "ev.{stream}"},
			{Name: "full.{stream}", Paused: true, Code: "stream_full", Why: "maximum messages exceeded", Since: now},
		},
		Published: 1234567, Backlog: 42, OldestAge: 90 * time.Second, Rate: 12.5, LagP50: 2 * time.Millisecond, LagP99: 1500 * time.Millisecond,
		Quarantines: []relay.RecentQuarantine{{At: now, Row: 77, Stream: "orders", Code: "too_large", Reason: "too_large: <script>alert(1)</script>"}},
		Counted: &outbox.Stats{
			Now: now, Pending: 42, Claimed: 3, Delivered: -1, Quarantined: 1,
			QuarantineByCode: map[string]int64{"too_large": 1},
			Streams: []outbox.StreamStats{
				{Stream: "idle", Quarantined: 1},
				{Stream: "young", Pending: 2, OldestPending: now.Add(-time.Second)},
				{Stream: "old", Pending: 40, OldestPending: now.Add(-90 * time.Second)},
			},
		},
	}
	for i := range 20 {
		s.Samples = append(s.Samples, relay.Sample{At: now.Add(time.Duration(i-20) * relay.SamplePeriod),
			Accepted: 10 * i, LagP50: time.Millisecond, LagP99: time.Duration(i) * time.Millisecond, Backlog: int64(100 - i)})
	}
	return s
}

func renderPage(t *testing.T, s relay.Snapshot, missing ...string) string {
	t.Helper()
	var page strings.Builder
	if err := statusPageTemplate.Execute(&page, newPageData(s, missing, s.Progress)); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestStatusPageShowsWhatIsWrong(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	page := renderPage(t, busySnapshot(now))
	for _, want := range []string{
		"disconnected: refused", "every event waits", "[stream_full]: maximum messages exceeded",
		"1,234,567", "12.5 /s", "2.0 ms", "1.5 s", ">42<", `aria-label="published: at most 36.0 /s, now 36.0 /s"`,
		"&lt;script&gt;alert(1)", "<td class=\"n\">77</td>", "too_large",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script") {
		t.Error("the page has a script")
	}
	if old, young, idle := strings.Index(page, ">old<"), strings.Index(page, ">young<"), strings.Index(page, ">idle<"); !(0 < old && old < young && young < idle) {
		t.Errorf("streams are not ordered by their oldest event: %d %d %d", old, young, idle)
	}
}

func TestStatusPageOfAnIdleRelay(t *testing.T) {
	now := time.Now()
	page := renderPage(t, relay.Snapshot{Progress: now, Backlog: -1})
	if !strings.Contains(page, "Everything is in order.") || !strings.Contains(page, "not counted yet") {
		t.Error(page)
	}
	if strings.Contains(page, "<svg") || strings.Contains(page, "NaN") {
		t.Error("charts without samples")
	}
}

func TestStatusPageSurvivesFlatLines(t *testing.T) {
	now := time.Now()
	s := relay.Snapshot{Progress: now, Samples: make([]relay.Sample, 5)}
	if page := renderPage(t, s); strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || !strings.Contains(page, "<polyline points=") {
		t.Error(page)
	}
}

func TestStatusPageNamesARouteWithoutStream(t *testing.T) {
	s := relay.Snapshot{Progress: time.Now(), Routes: []relay.RouteState{{Name: "lost.{stream}"}}}
	if page := renderPage(t, s, "lost.{stream}"); !strings.Contains(page, "route lost.{stream}: no stream takes its subjects") {
		t.Error(page)
	}
}

// browser finds the system's Chromium.
func browser(t *testing.T) string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium on this machine; install the system's chromium package to run this test")
	return ""
}

// With scripts off, a real browser shows the numbers and draws the charts, and the
// policy that the page is sent with lets its style through.
func TestStatusPageInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	path := browser(t)
	now := time.Now()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", pagePolicy)
		fmt.Fprint(w, renderPage(t, busySnapshot(now)))
	}))
	defer server.Close()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("blink-settings", "scriptEnabled=false"), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Navigate(server.URL)); err != nil {
		t.Fatal(err)
	}
	state, counts, routes := seen(t, ctx, chromedp.Text("#state")), seen(t, ctx, chromedp.Text("#counts")), seen(t, ctx, chromedp.Text("#routes"))
	chart := seen(t, ctx, chromedp.Dimensions("svg"))
	picture := seen(t, ctx, chromedp.FullScreenshot(100))
	if file := os.Getenv("STATUS_PAGE_PICTURE"); file != "" {
		if err := os.WriteFile(file, picture, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(state, "disconnected: refused") || !strings.Contains(counts, "42") || !strings.Contains(routes, "stream_full") {
		t.Errorf("the browser shows %q, %q, %q", state, counts, routes)
	}
	if chart.Width < 200 || chart.Height < 50 {
		t.Errorf("a chart is drawn %d by %d", chart.Width, chart.Height)
	}
	if len(picture) < 10_000 {
		t.Errorf("the picture of the page has %d bytes", len(picture))
	}
}

// seen is what the browser answers.
func seen[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
