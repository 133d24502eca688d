package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	daemonlib "github.com/coreos/go-systemd/v22/daemon"
	"github.com/dustin/go-humanize"
	"github.com/rs/zerolog"

	"github.com/outbox-relay/relay/relay"
)

// notifier tells the service manager, if there is one.
type notifier struct {
	log      zerolog.Logger
	watchdog time.Duration // 0: none is expected
}

// newNotifier reads the environment of systemd and leaves it in place.
func newNotifier(log zerolog.Logger) notifier {
	watchdog, err := daemonlib.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn().Err(err).Msg("no watchdog")
	}
	return notifier{log: log, watchdog: watchdog}
}

func (n notifier) send(lines ...string) {
	if _, err := daemonlib.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		n.log.Debug().Err(err).Msg("the service manager was not told")
	}
}

const (
	// statusEvery is how often STATUS= is sent while nothing but figures change.
	statusEvery = 10 * time.Second
	// stalledAfter is how long the loop may go without a sign of life.
	stalledAfter = 10 * time.Second
	// stalledAtLeast keeps a short watchdog from taking one slow fsync for a hang.
	stalledAtLeast = 2 * time.Second
)

// reporter tells the service manager how the relay does, feeds its watchdog
// and reloads the configuration. It feeds the watchdog only while the relay's
// loop shows progress; being unable to reach broker or database is no hang.
type reporter struct {
	snapshot func() relay.Snapshot
	send     func(lines ...string)
	watchdog time.Duration
	reload   func() error

	began      time.Time
	ready      bool
	fed        time.Time
	stateSent  string // troubles of the last STATUS=
	sentAt     time.Time
	reloadNote string // why the last reload changed nothing
}

func newReporter(d *daemon) *reporter {
	return &reporter{
		snapshot: d.relay.Snapshot, send: d.notify.send, watchdog: d.notify.watchdog, reload: d.reload,
		began: time.Now(),
	}
}

// run reports until ctx ends. Each signal from hup is a wish to reload.
func (r *reporter) run(ctx context.Context, hup <-chan os.Signal) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			r.reloaded()
		case <-timer.C:
			r.tick(time.Now())
			timer.Reset(r.interval())
		}
	}
}

// interval is short until the relay is ready, and then a third of the watchdog's
// time or a second.
func (r *reporter) interval() time.Duration {
	switch {
	case !r.ready:
		return 10 * time.Millisecond
	case r.watchdog > 0:
		return min(r.watchdog/3, time.Second)
	}
	return time.Second
}

func (r *reporter) tick(now time.Time) {
	s := r.snapshot()
	if !r.ready {
		if !s.Progress.After(r.began) { // the loop has not run yet
			return
		}
		r.ready = true
		r.send(daemonlib.SdNotifyReady)
	}
	if r.watchdog > 0 && now.Sub(r.fed) >= min(r.watchdog/3, time.Second) && now.Sub(s.Progress) <= r.patience() {
		r.fed = now
		r.send(daemonlib.SdNotifyWatchdog)
	}
	state := strings.Join(append(troubles(s, now), r.notes()...), "; ")
	if state != r.stateSent || now.Sub(r.sentAt) >= statusEvery {
		r.send("STATUS=" + statusText(s, state))
		r.stateSent, r.sentAt = state, now
	}
}

// patience is how old the loop's last sign of life may be for the watchdog to
// be fed.
func (r *reporter) patience() time.Duration {
	return max(min(r.watchdog/2, stalledAfter), stalledAtLeast)
}

func (r *reporter) notes() []string {
	if r.reloadNote == "" {
		return nil
	}
	return []string{r.reloadNote}
}

// reloaded answers SIGHUP.
func (r *reporter) reloaded() {
	r.send(daemonlib.SdNotifyReloading, strings.TrimSuffix(daemonlib.SdNotifyMonotonicUsec(), "\n"))
	r.reloadNote = ""
	if err := r.reload(); err != nil {
		r.reloadNote = "reload refused, the old configuration goes on: " + oneLine(err.Error())
	}
	if r.ready {
		r.send(daemonlib.SdNotifyReady)
	}
	r.tick(time.Now())
}

// statusText is the line that systemctl status shows. Rate and lag are of the
// last minute; state is what is wrong, "" for nothing.
func statusText(s relay.Snapshot, state string) string {
	text := fmt.Sprintf("%s events/s, lag p50 %s p99 %s", rateText(s.Rate), roughDuration(s.LagP50), roughDuration(s.LagP99))
	if s.Backlog >= 0 {
		text += fmt.Sprintf(", backlog %s", humanize.Comma(s.Backlog))
	}
	if s.Backlog > 0 {
		text += ", oldest " + roughDuration(s.OldestAge)
	}
	if state != "" {
		text += "; " + state
	}
	return oneLine(text)
}

func rateText(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return humanize.Comma(int64(math.Round(rate)))
}

// troubles says what keeps the relay from being ready; none: it is.
func troubles(s relay.Snapshot, now time.Time) []string {
	var list []string
	if s.Database != "" {
		list = append(list, "database: "+s.Database)
	}
	if s.BreakerOpen {
		list = append(list, fmt.Sprintf("broker unusable since %s: %s", s.BreakerSince.Format(time.RFC3339), s.BreakerWhy))
	}
	for _, route := range s.Routes {
		if route.Paused {
			list = append(list, fmt.Sprintf("route %s paused since %s [%s]: %s", route.Name, route.Since.Format(time.RFC3339), route.Code, route.Why))
		}
	}
	if s.Unrouted > 0 {
		list = append(list, fmt.Sprintf("events without a route (%s tries lately); relay list --code unrouted shows them", humanize.Comma(s.Unrouted)))
	}
	if stalled := now.Sub(s.Progress); !s.Progress.IsZero() && stalled > stalledAfter {
		list = append(list, fmt.Sprintf("no progress since %s", s.Progress.Format(time.RFC3339)))
	}
	return list
}

// roughDuration is d for a person: 850ms, 12s, 3m20s, 5h7m, 12d3h.
func roughDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + roughDuration(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return shortDuration(d.Round(time.Second))
	case d < 2*day:
		return shortDuration(d.Round(time.Minute))
	}
	days := int64(d / day)
	if days >= 730 {
		return fmt.Sprintf("%dy%dd", days/365, days%365)
	}
	return fmt.Sprintf("%dd%dh", days, int64(d%day/time.Hour))
}
