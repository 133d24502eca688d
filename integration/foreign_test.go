//go:build unix

package integration

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-relay/relay/integration/harness"
	"github.com/outbox-relay/relay/integration/natstest"
	"github.com/outbox-relay/relay/integration/workload"
)

// foreignStage has a file as the other library installs it, in the named version.
func foreignStage(t *testing.T, name string) *stage {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("..", "outbox", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(string(script)); err != nil {
		t.Fatal(err)
	}
	if err := workload.Prepare(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, nats: natstest.Prepare(t, natstest.Options{}), db: harness.OpenDatabase(t, path), faults: &harness.Journal{}}
	s.nats.Start()
	s.createStream()
	return s
}

func TestFileOfTheOtherLibraryIsRelayed(t *testing.T) {
	harness.Heavy(t)
	s := foreignStage(t, "foreign_v2.sql")
	indexes := s.text(`SELECT group_concat(name) FROM sqlite_schema WHERE type = 'index'`)
	relay := s.startRelay("relay")
	n := s.waitProduced(s.produce(2, 300, 0))
	s.db.WaitDelivered(n, harness.Patience)
	relay.Stop()
	s.check(n, harness.Expect{})
	if after := s.text(`SELECT group_concat(name) FROM sqlite_schema WHERE type = 'index'`); after != indexes {
		t.Errorf("the relay has left the indexes %s, there were %s", after, indexes)
	}
}

func TestFileOfVersionOneIsRelayedAfterItsUpgrade(t *testing.T) {
	harness.Heavy(t)
	s := foreignStage(t, "foreign_v1.sql")
	s.db.Exec(`INSERT INTO dovecote_events (stream, specversion, event_id, source, event_type) VALUES ('ev', '1.0', 'old', '/shop', 't')`)
	s.db.Exec(`INSERT INTO dovecote_deliveries (event_row_id, state) VALUES (1, 'pending')`)
	config := harness.WriteConfig(t, s.config().TOML())
	wantRefusal(t, 1, []string{s.db.Path, "migrate", "--tenant"}, "run", "--config", config)

	harness.MustRun(t, "migrate", "--tenant", "acme", "--db", s.db.Path)
	relay := s.startRelay("relay")
	s.waitStates(harness.States{Delivered: 1})
	relay.Stop()
	stored := s.stored("EVENTS")
	if len(stored) != 1 || stored[0].Header.Get("ce-id") != "old" || stored[0].Header.Get("Outbox-Tenant") != "acme" || !strings.HasPrefix(stored[0].Subject, "ev.") {
		t.Errorf("%d messages: %+v", len(stored), stored)
	}
}
