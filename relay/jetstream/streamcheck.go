package jetstream

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// checkStream looks at one stream's settings.
func (c *preflight) checkStream(s *jetstream.StreamInfo) {
	cfg, name := &s.Config, "stream "+s.Config.Name
	for _, check := range streamChecks {
		if check.wrong(c, s) {
			c.add(check.severity, name, check.problem, check.why, check.fix)
		}
	}
	c.checkWindow(name, cfg)
	c.checkLimits(name, cfg)
	if limit := int(cfg.MaxMsgSize); limit > 0 && c.o.MaxEvent > 0 && limit < c.o.MaxEvent+headerAllowance {
		c.add(SeverityWarning, name, fmt.Sprintf("max_msg_size is %d bytes, max_event %d", limit, c.o.MaxEvent),
			"payload and headers count: an event that producers may enqueue can be too large for the stream, and ends in quarantine",
			fmt.Sprintf("raise max_msg_size to %d or more, or lower max_event", c.o.MaxEvent+headerAllowance))
	}
}

// streamChecks are the settings that are right or wrong by themselves.
var streamChecks = []struct {
	wrong             func(c *preflight, s *jetstream.StreamInfo) bool
	severity          Severity
	problem, why, fix string
}{
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool { return s.Config.NoAck },
		SeverityError, "does not acknowledge (no_ack)",
		"no event can ever be confirmed: each is stored again at every attempt and ends in quarantine as unconfirmed",
		"set no_ack to false: nats stream edit --ack",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool { return s.Config.Sealed },
		SeverityError, "is sealed", "it takes no more messages, and sealing cannot be undone",
		"send its subjects to another stream",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool { return s.Config.AllowMsgCounter },
		SeverityError, "is a stream of counters", "it refuses every message that is no increment",
		"send its subjects to an ordinary stream",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool {
			return s.Cluster != nil && s.Cluster.Name != "" && s.Cluster.Leader == ""
		},
		SeverityError, "has no leader", "nothing can be stored until its replicas have a majority again",
		"bring its servers back: nats stream cluster info",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool {
			return s.Cluster != nil && s.Cluster.Name != "" && s.Config.Replicas <= 1
		},
		SeverityWarning, "has one replica in a cluster", "events wait while its server is down and are lost with its disk",
		"use 3 replicas: nats stream edit --replicas 3",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool { return s.Config.Storage == jetstream.MemoryStorage },
		SeverityWarning, "is kept in memory", "acknowledged events are lost when its servers restart",
		"use file storage",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool {
			return s.Config.PersistMode == jetstream.AsyncPersistMode
		},
		SeverityWarning, "acknowledges before it has written (persist_mode async)",
		"acknowledged events are lost when its server dies", "use the default persist_mode",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool {
			return s.Config.Retention == jetstream.InterestPolicy && s.State.Consumers == 0
		},
		SeverityWarning, "has interest retention and no consumer",
		"events are acknowledged and dropped at once, for nobody is interested",
		"create the consumers first, or use limits retention",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool {
			return s.Config.Retention == jetstream.WorkQueuePolicy
		},
		SeverityWarning, "is a work queue", "each event goes to one consumer and is then gone: a second service that needs it never sees it",
		"fine for a single kind of consumer; else use limits retention",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool { return s.Config.SubjectTransform != nil },
		SeverityWarning, "stores events under other subjects (subject_transform)",
		"consumers that filter by the route's subjects find nothing", "filter by the transformed subjects, or remove the transform",
	},
	{
		func(_ *preflight, s *jetstream.StreamInfo) bool { return s.Config.DiscardNewPerSubject },
		SeverityWarning, "refuses events of a subject that is full (discard_new_per_subject)",
		"such events fail, and after max_attempts end in quarantine", "raise max_msgs_per_subject, or discard old ones",
	},
}

// checkWindow compares the duplicate window with the longest time between two
// publishes of one event of which the first went unconfirmed: the longest
// delay, then a lease that runs out because the process died, then a timeout.
func (c *preflight) checkWindow(name string, cfg *jetstream.StreamConfig) {
	backoff := time.Duration(float64(c.o.Backoff.Max) * (1 + c.o.Backoff.Jitter))
	if backoff == 0 && c.o.Lease == 0 {
		return
	}
	span := backoff + c.o.Lease + c.p.o.PublishTimeout
	if cfg.Duplicates >= span {
		return
	}
	c.add(SeverityWarning, name,
		fmt.Sprintf("the duplicate window of %v is shorter than the longest time between two attempts, %v", cfg.Duplicates, span.Round(time.Second)),
		"an event whose PubAck was lost can be stored twice; consumers must deduplicate by source and id in any case",
		fmt.Sprintf("widen it: nats stream edit --dupe-window %v, or lower relay.backoff.max", (span+time.Minute).Truncate(time.Minute)))
}

// shortAge is a max_age that a weekend's outage of a consumer exceeds.
const shortAge = 72 * time.Hour

// checkLimits finds limits that make unread events vanish.
func (c *preflight) checkLimits(name string, cfg *jetstream.StreamConfig) {
	if cfg.MaxAge > 0 && cfg.MaxAge < shortAge {
		c.add(SeverityWarning, name, fmt.Sprintf("max_age is %v", cfg.MaxAge),
			"a consumer that is down for longer loses events", "raise max_age to the longest outage that consumers may have")
	}
	if cfg.Discard != jetstream.DiscardOld {
		return
	}
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"max_msgs", cfg.MaxMsgs}, {"max_bytes", cfg.MaxBytes}, {"max_msgs_per_subject", cfg.MaxMsgsPerSubject},
	} {
		if l.value > 0 {
			c.add(SeverityWarning, name, fmt.Sprintf("discards old events at %s %d", l.name, l.value),
				"when it is full, events that nobody has read yet vanish",
				"use discard new: then the relay waits for space, and nothing is lost")
		}
	}
}
