package outbox

import "context"

// MigrateOptions adjust Migrate.
type MigrateOptions struct {
	Create     bool   // make a missing (or empty) file
	Tenant     string // takes a version 1 file up: the tenant of its rows
	AddIndexes bool   // add our indexes to a file that another library installed
	DryRun     bool   // report, change nothing
}

// Migrated says what Migrate did, or would do.
type Migrated struct {
	From, To int      // schema versions; From 0: no schema before
	Created  bool     // the file was made
	Steps    []string // what was (or would be) done, in words; empty: up to date
}

// Migrate brings the file at path to the current schema version, in one BEGIN
// IMMEDIATE. Safe when two start at once. Without Create a missing file is an error
// and nothing is created.
func Migrate(ctx context.Context, path string, o MigrateOptions) (Migrated, error) { panic("todo") }
