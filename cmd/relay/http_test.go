package main

import (
	"slices"
	"testing"

	"github.com/outbox-relay/relay/relay"
)

func TestRoutesWithoutStreamAreNamedOnce(t *testing.T) {
	paused := relay.Snapshot{Routes: []relay.RouteState{{Name: "a.{type}", Paused: true}, {Name: "b.{type}"}}}
	got := withoutStream(paused, []string{"a.{type}", "b.{type}"})
	if want := []string{"route b.{type}: no stream takes its subjects"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := withoutStream(relay.Snapshot{BreakerOpen: true}, []string{"b.{type}"}); len(got) > 0 {
		t.Errorf("%q beside an open breaker, whose reason comes first", got)
	}
}
