package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

// withDB gives c the --db flag.
func (a *app) withDB(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&a.db, "db", "", "outbox database `file`, instead of --config")
	return c
}

// settings reads the configuration, or makes one of --db alone.
func (a *app) settings() (config, error) {
	switch {
	case a.configFile != "" && a.db != "":
		return config{}, usagef("use --config or --db, not both")
	case a.configFile != "":
		return loadConfig(a.configFile)
	case a.db != "":
		c := defaultConfig()
		c.Outbox.Path = a.db
		return c, nil
	}
	return config{}, usagef("--config FILE or --db FILE is required")
}

// access says what a command does to the database.
type access uint8

const (
	reads access = iota
	writes
)

// open reads the settings and opens the outbox that they name, as the tenant
// that they name. Close the store.
func (a *app) open(ctx context.Context, mode access) (config, *outbox.Store, *outbox.Handle, error) {
	c, err := a.settings()
	if err != nil {
		return c, nil, nil, err
	}
	store, err := outbox.Open(ctx, c.Outbox.Path, c.storeOptions(mode))
	if err != nil {
		return c, nil, nil, err
	}
	handle, err := c.handle(store)
	if err != nil {
		_ = store.Close() // nothing was written
		return c, nil, nil, err
	}
	return c, store, handle, nil
}

func (c *config) storeOptions(mode access) outbox.Options {
	retries := c.Outbox.BusyRetries
	if retries == 0 {
		retries = -1 // the library's "none"
	}
	return outbox.Options{
		BusyTimeout: c.Outbox.BusyTimeout,
		BusyRetries: retries,
		Synchronous: c.Outbox.Synchronous,
		ReadOnly:    mode == reads,
	}
}

// handle is the tenant's view of the store, or every tenant's.
func (c *config) handle(store *outbox.Store) (*outbox.Handle, error) {
	if c.Outbox.Tenant == "" {
		return store.AllTenants(), nil
	}
	return store.Tenant(c.Outbox.Tenant)
}
