package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-relay/relay/relay"
)

// sent is one notification with the time it was sent at, from the start.
type sent struct {
	at   time.Duration
	text string
}

// manager records what a reporter sends.
type manager struct {
	mu    sync.Mutex
	began time.Time
	list  []sent
}

func (m *manager) send(lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, sent{time.Since(m.began), strings.Join(lines, "\n")})
}

// of has the notifications that begin with prefix.
func (m *manager) of(prefix string) (list []sent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.list {
		if strings.HasPrefix(s.text, prefix) {
			list = append(list, s)
		}
	}
	return list
}

// report runs a reporter for a time of the bubble's clock.
func report(t *testing.T, r *reporter, hup chan os.Signal, during func()) *manager {
	m := &manager{began: time.Now()}
	r.began, r.send = time.Now(), m.send
	ctx, cancel := context.WithCancel(t.Context())
	go r.run(ctx, hup)
	during()
	cancel()
	synctest.Wait()
	return m
}

func TestWatchdogIsFedByProgressOnly(t *testing.T) {
	healthy := func(*relay.Snapshot) {}
	tests := []struct {
		name     string
		watchdog time.Duration
		change   func(*relay.Snapshot)
		hangs    time.Duration // after which progress ends; 0: never
	}{
		{"idle", 2 * time.Second, healthy, 0},
		{"short watchdog", 500 * time.Millisecond, healthy, 0},
		{"long watchdog", 30 * time.Second, healthy, 0},
		{"broker down", 2 * time.Second, func(s *relay.Snapshot) { s.BreakerOpen, s.BreakerWhy = true, "disconnected" }, 0},
		{"database locked", 2 * time.Second, func(s *relay.Snapshot) { s.Database = "busy" }, 0},
		{"loop hangs", 2 * time.Second, healthy, 20 * time.Second},
		{"loop hangs under a short watchdog", 500 * time.Millisecond, healthy, 20 * time.Second},
		{"loop hangs under a long watchdog", 30 * time.Second, healthy, 20 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				r := &reporter{watchdog: tt.watchdog, snapshot: func() relay.Snapshot {
					s := relay.Snapshot{Progress: time.Now()}
					if tt.hangs > 0 && time.Since(start) > tt.hangs {
						s.Progress = start.Add(tt.hangs)
					}
					tt.change(&s)
					return s
				}}
				m := report(t, r, nil, func() { time.Sleep(time.Minute) })
				last := time.Duration(0)
				for _, s := range m.of("WATCHDOG=1") {
					if s.at-last > tt.watchdog/2 {
						t.Errorf("no ping from %v to %v", last, s.at)
					}
					last = s.at
				}
				end := time.Minute
				if tt.hangs > 0 {
					end = tt.hangs + max(tt.watchdog/2, 2*time.Second)
				}
				if last > end || end-last > tt.watchdog/2 {
					t.Errorf("last ping at %v, want it near %v", last, end)
				}
			})
		})
	}
}

func TestReadyWhenTheLoopHasRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &reporter{watchdog: time.Second, snapshot: func() relay.Snapshot {
			s := relay.Snapshot{Progress: start}
			if time.Since(start) >= 3*time.Second {
				s.Progress = time.Now()
			}
			return s
		}}
		m := report(t, r, nil, func() { time.Sleep(10 * time.Second) })
		ready := m.of("READY=1")
		if len(ready) != 1 || ready[0].at < 3*time.Second || ready[0].at > 3100*time.Millisecond {
			t.Errorf("READY sent %v", ready)
		}
		if m.list[0].text != "READY=1" {
			t.Errorf("%q came before READY", m.list[0].text)
		}
	})
}

func TestStatusFollowsStateAtOnceAndFiguresSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &reporter{snapshot: func() relay.Snapshot {
			s := relay.Snapshot{Progress: time.Now(), Backlog: int64(time.Since(start) / time.Second), Rate: 1234.56, LagP50: 2 * time.Millisecond}
			if time.Since(start) > 25*time.Second {
				s.BreakerOpen, s.BreakerWhy, s.BreakerSince = true, "disconnected:\nnats: no servers", start
			}
			return s
		}}
		m := report(t, r, nil, func() { time.Sleep(time.Minute) })
		status := m.of("STATUS=")
		if n := len(status); n < 6 || n > 8 {
			t.Errorf("%d STATUS lines in a minute: %v", n, status)
		}
		if s := status[0].text; !strings.HasPrefix(s, "STATUS=1,235 events/s, lag p50 2ms p99 0s, backlog 0") {
			t.Errorf("first status %q", s)
		}
		i := slices.IndexFunc(status, func(s sent) bool { return strings.Contains(s.text, "broker unusable") })
		if i < 0 || status[i].at > 27*time.Second {
			t.Fatalf("the broker's loss was told late: %v", status)
		}
		if strings.Contains(status[i].text, "\n") {
			t.Errorf("more than one line: %q", status[i].text)
		}
	})
}

func TestReloadIsAnnouncedAndRefusalShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{errors.New("relay.toml:3: bad"), nil}
		r := &reporter{
			snapshot: func() relay.Snapshot { return relay.Snapshot{Progress: time.Now(), Backlog: -1} },
			reload: func() error {
				err := answers[0]
				answers = answers[1:]
				return err
			},
		}
		hup := make(chan os.Signal)
		m := report(t, r, hup, func() {
			for range 2 {
				time.Sleep(1500 * time.Millisecond)
				hup <- syscall.SIGHUP
			}
			time.Sleep(time.Second)
		})
		var texts []string
		for _, s := range m.list {
			texts = append(texts, strings.TrimRight(s.text, "0123456789"))
		}
		want := []string{
			"READY=", "STATUS=0.0 events/s, lag p50 0s p99 0s",
			"RELOADING=1\nMONOTONIC_USEC=", "READY=", "STATUS=0.0 events/s, lag p50 0s p99 0s; reload refused, the old configuration goes on: relay.toml:3: bad",
			"RELOADING=1\nMONOTONIC_USEC=", "READY=", "STATUS=0.0 events/s, lag p50 0s p99 0s",
		}
		if !slices.Equal(texts, want) {
			t.Errorf("sent\n%q\nwant\n%q", texts, want)
		}
	})
}
