package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

func TestExplanations(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := func(wait time.Duration, attempts int64, code, detail string) outbox.Delivery {
		return outbox.Delivery{State: outbox.Pending, AvailableAt: now.Add(wait), Attempts: attempts, FailureCode: code, FailureDetail: detail}
	}
	tests := []struct {
		name      string
		entry     outbox.Entry
		why, next string // parts
	}{
		{"new and due", outbox.Entry{Delivery: pending(0, 0, "", "")}, "it is new and waits for a relay", "in its next turn"},
		{"new and not due", outbox.Entry{Delivery: pending(time.Hour, 0, "", "")}, "not due for 1h", "when it is due, in 1h"},
		{"long overdue", outbox.Entry{Delivery: pending(-2*time.Hour, 0, "", "")}, "it is new", "overdue by 2h: is a relay running on this file?"},
		{"given back", outbox.Entry{Delivery: pending(0, 2, "", "")}, "claimed twice and given back unsent", "next turn"},
		{"blocked route", outbox.Entry{Delivery: pending(12*time.Second, 1, "no_stream", "no stream takes subject ev.a")},
			"claimed once; the last try failed: no stream takes subject ev.a [no_stream]", "in 12s, if the cause is gone; this kind of failure never quarantines it; add the subject to a stream"},
		{"unrouted", outbox.Entry{Delivery: pending(time.Second, 3, "unrouted", "no route")}, "3 times", "add a [[route]]"},
		{"requeued after a failure", outbox.Entry{Delivery: pending(0, 0, "publish_timeout", "unconfirmed")}, "it was requeued; its last failure was unconfirmed [publish_timeout]", "next turn"},
		{"requeued without a failure", outbox.Entry{Delivery: pending(0, 0, outbox.RequeuedCode, "operator: hold")}, "it was requeued; it had been quarantined: operator: hold", "next turn"},
		{"undecodable and not due", outbox.Entry{Delivery: pending(time.Hour, 0, "", ""), DecodeErr: errors.New("row 1: column extensions: bad")},
			"it cannot be decoded", "in 1h a relay quarantines it [undecodable]"},
		{"due time in a wrong form", outbox.Entry{Row: 7, Delivery: outbox.Delivery{State: outbox.Pending}, DecodeErr: errors.New("row 7: column available_at: bad")},
			"it cannot be decoded (row 7: column available_at: bad)", "may never come; set it to now by hand, or set the row aside with relay quarantine 7"},
		{"lease end in a wrong form", outbox.Entry{Row: 7, Delivery: outbox.Delivery{State: outbox.InClaim}, DecodeErr: errors.New("row 7: column claim_expires_at: bad")},
			"it cannot be decoded", "its claim_expires_at is compared as text, and may never come"},
		{"unreadable state", outbox.Entry{DecodeErr: errors.New(`row 7: column state: is "PENDING"`)},
			`it cannot be decoded (row 7: column state: is "PENDING")`, "relay check"},
		{"undecodable", outbox.Entry{Delivery: pending(0, 0, "", ""), DecodeErr: errors.New("row 1: column extensions: bad")},
			"it cannot be decoded (row 1: column extensions: bad)", "quarantines it [undecodable]"},
		{"claimed", outbox.Entry{Delivery: outbox.Delivery{State: outbox.InClaim, ClaimedBy: "host-7", Attempts: 1, ClaimExpires: now.Add(20 * time.Second)}},
			"worker host-7 claimed it (claim 1)", "its lease ends in 20s"},
		{"expired", outbox.Entry{Delivery: outbox.Delivery{State: outbox.InClaim, ClaimedBy: "host-7", Attempts: 1, ClaimExpires: now.Add(-20 * time.Second)}},
			"its lease ended 20s ago", "the next claim takes it over"},
		{"lease ends too far ahead", outbox.Entry{Delivery: outbox.Delivery{State: outbox.InClaim, ClaimedBy: "host-7", ClaimExpires: now.Add(80000 * time.Hour)}},
			"longer than any lease", "set claim_expires_at"},
		{"worker with control characters", outbox.Entry{Delivery: outbox.Delivery{State: outbox.InClaim, ClaimedBy: "a\x1b[2Jb", ClaimExpires: now.Add(time.Second)}},
			`worker "a\x1b[2Jb" claimed it`, "lease"},
		{"delivered", outbox.Entry{EnqueuedAt: now.Add(-time.Minute), Delivery: outbox.Delivery{State: outbox.Delivered, Attempts: 1, DeliveredAt: now}},
			"acknowledged it at 2026-01-02T03:04:05Z, 1m after it was enqueued, on claim 1", "prune"},
		{"imported as delivered", outbox.Entry{EnqueuedAt: now, Delivery: outbox.Delivery{State: outbox.Delivered, DeliveredAt: now.Add(-time.Hour)}},
			"imported as delivered at 2026-01-02T02:04:05Z", "prune"},
		{"quarantined", outbox.Entry{Row: 12, Delivery: outbox.Delivery{State: outbox.Quarantined, QuarantinedAt: now.Add(-time.Hour), QuarantineReason: "too_large: payload 7\nbytes"}},
			"set aside 1h ago: too_large: payload 7 bytes", "raise max_payload of the server or max_msg_size of the stream, then relay requeue 12"},
		{"quarantined by hand", outbox.Entry{Row: 12, Delivery: outbox.Delivery{State: outbox.Quarantined, QuarantinedAt: now, QuarantineReason: "operator: duplicate"}},
			"operator: duplicate", "nothing by itself; relay requeue 12 sends it again"},
		{"orphan", outbox.Entry{Orphan: true}, "no delivery row", "relay reconcile --repair"},
		{"unknown state", outbox.Entry{Delivery: outbox.Delivery{State: "lost"}}, `"lost" is none`, "relay check"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRowReport(&tt.entry)
			why, next := r.explain(now)
			if !strings.Contains(why, tt.why) || !strings.Contains(next, tt.next) {
				t.Errorf("why  %s\nnext %s", why, next)
			}
		})
	}
}

func TestQuarantineCodes(t *testing.T) {
	for reason, want := range map[string]string{
		"too_large: payload 1": "too_large", "operator: why": "operator", "crash_loop: x: y": "crash_loop",
		"no code": "other", "": "other", "Two words: x": "other", ": x": "other", "too_large:x": "other",
	} {
		if got := quarantineCode(reason); got != want {
			t.Errorf("%q has code %q, want %q", reason, got, want)
		}
	}
}

func TestRoughDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 12*time.Second + 300*time.Millisecond: "12s", 200 * time.Second: "3m20s",
		time.Hour: "1h", 5*time.Hour + 7*time.Minute + 3*time.Second: "5h7m", 49 * time.Hour: "2d1h", 3 * 365 * day: "3y0d", -time.Minute: "-1m",
	} {
		if got := roughDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestRestartKeysNameWhatAReloadCannotChange(t *testing.T) {
	running, file := defaultConfig(), defaultConfig()
	file.Relay.Batch, file.Log.Level, file.Retention.Batch = 7, "debug", 7
	if keys := restartKeys(&running, &file); len(keys) > 0 {
		t.Errorf("a reload changes %v", keys)
	}
	file.Relay.Lease, file.NATS.URLs, file.Metrics.Listen = time.Minute, []string{"nats://other"}, ":1"
	if keys := strings.Join(restartKeys(&running, &file), " "); keys != "relay.lease nats metrics" {
		t.Errorf("got %q", keys)
	}
	running.takeReloaded(&file)
	if running.Relay.Batch != 7 || running.Log.Level != "debug" || running.Relay.Lease != 30*time.Second {
		t.Errorf("got %+v", running)
	}
}

func TestServersAreLoggedWithoutSecrets(t *testing.T) {
	got := strings.Join(redactURLs([]string{"nats://a:4222", "nats://user:hunter2@b:4222", "tls://hunter2@c", "nats://hunter2%zz"}), " ")
	if got != "nats://a:4222 nats://***@b:4222 tls://***@c (unreadable)" {
		t.Errorf("got %q", got)
	}
}

func TestDataForAPerson(t *testing.T) {
	for _, tt := range []struct {
		name string
		data outbox.Data
		want string
	}{
		{"absent", outbox.Data{}, "none"},
		{"empty", outbox.Binary(nil), "binary, 0 bytes"},
		{"text", outbox.Binary([]byte("größe")), "binary, 7 bytes: größe"},
		{"escape sequence", outbox.Binary([]byte("\x1b[2J")), "binary, 4 bytes, not text; --json has it in base64"},
		{"invalid UTF-8", outbox.Binary([]byte{0xff}), "binary, 1 bytes, not text; --json has it in base64"},
		{"cut inside a character", outbox.JSON([]byte(`"` + strings.Repeat("é", 600) + `"`)), `json, 1,202 bytes, beginning "` + strings.Repeat("é", 511) + "…"},
	} {
		if got := dataText(tt.data); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
