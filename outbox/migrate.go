package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"github.com/outbox-relay/relay/migrations"
)

// MigrateOptions adjust Migrate.
type MigrateOptions struct {
	Create     bool   // make a missing (or empty) file
	Tenant     string // takes a version 1 file up: the tenant of its rows
	AddIndexes bool   // add our indexes to a file that another library installed
	DryRun     bool   // report, change nothing
	// Driver, when set, makes the connections to dsn in place of the built-in
	// driver (tests only).
	Driver func(dsn string) (driver.Connector, error)
}

func (o MigrateOptions) connector(dsn string) (driver.Connector, error) {
	if o.Driver != nil {
		return o.Driver(dsn)
	}
	return sqlite.NewConnector(dsn)
}

// Migrated says what Migrate did, or would do.
type Migrated struct {
	From, To int      // schema versions; From 0: no schema before
	Created  bool     // the file was made
	Steps    []string // what was (or would be) done, in words; empty: up to date
}

// Migrate brings the file at path to the current schema version, in one BEGIN
// IMMEDIATE. Safe when two start at once. Without Create a missing file is an error
// and nothing is created. A database without an outbox gets one beside its own
// tables. A version 1 file without a Tenant is a *MigrationMismatchError, and so is a
// file with a schema that is none of ours.
func Migrate(ctx context.Context, path string, o MigrateOptions) (Migrated, error) {
	file, err := absolute(path)
	if err != nil {
		return Migrated{}, err
	}
	fresh, err := migratable(file, o.Create)
	if err != nil {
		return Migrated{}, named(path, err)
	}
	if o.DryRun {
		return dryRun(ctx, path, file, fresh, o)
	}
	m, err := migrateFile(ctx, path, file, o)
	m.Created = fresh && len(m.Steps) > 0
	if FaultOf(err) == FaultDamaged {
		err = notADatabase(path, err)
	}
	return m, err
}

// migratable looks whether there is something to migrate. True: the file is to
// be made.
func migratable(file string, create bool) (bool, error) {
	_, err := statDatabase(file)
	if err == nil {
		return false, checkWritable(file)
	}
	fresh := errors.Is(err, fs.ErrNotExist)
	if !create || !fresh && !errors.Is(err, ErrEmptyFile) {
		return false, err
	}
	dir := filepath.Dir(file)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, &FileError{dir, "no such directory", "make it first", err}
	case err != nil:
		return false, &FileError{dir, "cannot be read: " + err.Error(), "", err}
	case !info.IsDir():
		return false, &FileError{dir, "is not a directory", "name a file in a directory", nil}
	}
	if err := writable(dir, true); err != nil {
		return false, &FileError{dir, "the directory cannot be written: " + err.Error(), "let this user write it", err}
	}
	return fresh, nil
}

// migrateURI opens the file for DDL: a table that others refer to can be
// replaced only while references are neither followed nor rewritten.
func migrateURI(file, mode string) string {
	return fileURI(file, mode, pragmaNoWait, pragmaNoMap,
		"_pragma=foreign_keys(0)", "_pragma=legacy_alter_table(1)", "_pragma=synchronous(full)")
}

func migrateFile(ctx context.Context, path, file string, o MigrateOptions) (Migrated, error) {
	mode := "mode=rw"
	if o.Create {
		mode = "mode=rwc"
	}
	c, err := o.connector(migrateURI(file, mode))
	if err != nil {
		return Migrated{}, err
	}
	w := newWriter(c, busyPolicy{timeout: 5 * time.Second, retries: 3}, nil)
	defer w.close()
	if err := w.useWAL(ctx); err != nil {
		return Migrated{}, err
	}
	var m Migrated
	_, err = w.write(ctx, "migrate", func(ctx context.Context, t *txn) error {
		var steps []step
		m, steps, err = plan(ctx, t.conn, path, o)
		if err != nil {
			return err
		}
		for _, s := range steps {
			if err := s.run(ctx, t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Migrated{}, err
	}
	return m, nil
}

// dryRun looks with a connection that cannot change anything.
func dryRun(ctx context.Context, path, file string, fresh bool, o MigrateOptions) (Migrated, error) {
	if _, err := statDatabase(file); err != nil { // missing or empty, and to be made
		return Migrated{To: migrations.Version, Created: fresh, Steps: []string{createTables, createIndexes}}, nil
	}
	c, err := o.connector(migrateURI(file, "mode=rw&"+pragmaQueryOnly))
	if err != nil {
		return Migrated{}, err
	}
	db := sql.OpenDB(c)
	defer db.Close()
	m, _, err := plan(ctx, db, path, o)
	if FaultOf(err) == FaultDamaged {
		err = notADatabase(path, err)
	}
	return m, err
}

// step is one change of a migration.
type step struct {
	name string
	run  func(context.Context, *txn) error
}

// The steps, as Migrated names them.
const (
	createTables  = "create the tables of schema version 2"
	createIndexes = "create the indexes of claims and of quarantine"
)

func script(name, ddl string) step {
	return step{name, func(ctx context.Context, t *txn) error {
		_, err := t.conn.ExecContext(ctx, ddl)
		return err
	}}
}

// plan looks at the file and says what is to be done.
func plan(ctx context.Context, q querier, path string, o MigrateOptions) (Migrated, []step, error) {
	r, err := inspectSchema(ctx, q)
	m := Migrated{From: r.version, To: migrations.Version}
	if err != nil {
		return m, nil, err
	}
	var steps []step
	switch {
	case r.absent:
		steps = []step{script(createTables, migrations.Outbox), script(createIndexes, migrations.Indexes)}
	case r.version == 1 && o.Tenant != "":
		if steps, err = upgradeSteps(ctx, q, path, o.Tenant); err != nil {
			return m, nil, err
		}
	case len(r.problems) > 0 && !(r.slow && o.AddIndexes):
		return m, nil, r.err(path)
	case o.AddIndexes:
		missing, err := missingIndexes(ctx, q)
		if err != nil {
			return m, nil, err
		}
		if missing {
			steps = []step{script(createIndexes, migrations.Indexes)}
		}
	}
	for _, s := range steps {
		m.Steps = append(m.Steps, s.name)
	}
	return m, steps, nil
}

const countIndexesSQL = `
SELECT count(*) FROM sqlite_master
WHERE type = 'index' AND tbl_name = 'dovecote_deliveries'
  AND name IN ('dovecote_deliveries_due', 'dovecote_deliveries_tenant_due', 'dovecote_deliveries_expiry',
    'dovecote_deliveries_quarantined')`

// missingIndexes reports whether one of our own indexes is not there.
func missingIndexes(ctx context.Context, q querier) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, countIndexesSQL).Scan(&n)
	return n < 4, err
}
