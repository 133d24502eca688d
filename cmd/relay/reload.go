package main

import (
	"errors"
	"reflect"
	"strings"
)

// reload reads the configuration file again and gives the running relay its
// routes, limits and log level. On error the old ones stay.
func (d *daemon) reload() error {
	c, err := loadConfig(d.config.file)
	if err == nil {
		err = c.requireRoutes()
	}
	if err != nil {
		d.logRefused(err)
		return err
	}
	s, err := c.reloadable()
	if err != nil {
		d.logRefused(err)
		return err
	}
	if keys := restartKeys(&d.config, &c); len(keys) > 0 {
		d.log.Warn().Str("keys", strings.Join(keys, ", ")).Msg("these changes need a restart")
	}
	d.publisher.SetRoutes(s.Routes)
	d.relay.Reload(s)
	setLogLevel(c.Log.Level)
	d.config.takeReloaded(&c)
	d.log.Info().Int("routes", s.Routes.Len()).Str("log_level", c.Log.Level).Msg("configuration reloaded")
	return nil
}

// logRefused logs each problem, at a level that is never silenced.
func (d *daemon) logRefused(err error) {
	var conf *configError
	if !errors.As(err, &conf) {
		d.log.Error().Err(err).Msg("configuration not reloaded, the old one goes on")
		return
	}
	for _, p := range conf.Problems {
		d.log.Error().Str("problem", p.String()).Msg("configuration not reloaded, the old one goes on")
	}
}

// takeReloaded copies what a reload changes.
func (c *config) takeReloaded(from *config) {
	lease, poll, drain := c.Relay.Lease, c.Relay.Poll, c.Relay.Drain
	c.Relay = from.Relay
	c.Relay.Lease, c.Relay.Poll, c.Relay.Drain = lease, poll, drain
	c.Routes, c.Retention, c.Log.Level = from.Routes, from.Retention, from.Log.Level
}

// restartKeys names what differs between two configurations and is read only at
// the start.
func restartKeys(running, file *config) []string {
	var keys []string
	for _, k := range []struct {
		name     string
		old, new any
	}{
		{"outbox", running.Outbox, file.Outbox},
		{"relay.lease", running.Relay.Lease, file.Relay.Lease},
		{"relay.poll", running.Relay.Poll, file.Relay.Poll},
		{"relay.drain", running.Relay.Drain, file.Relay.Drain},
		{"nats", running.NATS, file.NATS},
		{"metrics", running.Metrics, file.Metrics},
		{"log.format", running.Log.Format, file.Log.Format},
	} {
		if !reflect.DeepEqual(k.old, k.new) {
			keys = append(keys, k.name)
		}
	}
	return keys
}
