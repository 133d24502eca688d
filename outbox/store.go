package outbox

import (
	"context"
	"io"
	"time"
)

// Options adjust [Open]. The zero value is right for a relay.
type Options struct {
	// BusyTimeout bounds one try for the writer slot. 0 means 5 s.
	BusyTimeout time.Duration
	// BusyRetries is how often a whole operation is tried again after a
	// try ran out of BusyTimeout. 0 means 3; negative means none.
	BusyRetries int
	// Synchronous is "normal" (default), "full" or "extra".
	Synchronous string
	// ReadOnly refuses every write. The file is still opened read-write where
	// permissions allow, so that SQLite removes its own side files.
	ReadOnly bool
	// OnBusy, when set, is called on every unsuccessful try for the writer
	// slot, with the time waited so far in this operation. It must not block.
	OnBusy func(waited time.Duration)
	// Entropy supplies claim tokens. Nil means crypto/rand.
	Entropy io.Reader
	// Now, when set, replaces the database's clock (tests only).
	Now func() time.Time
}

// Store is an open outbox file. Safe for concurrent use.
type Store struct{ unimplemented }

// Handle is a Store seen as one tenant, or explicitly as all tenants. Each
// operation carries the tenant as an SQL predicate.
type Handle struct{ unimplemented }

type unimplemented struct{}

// Open opens an existing outbox file. It creates nothing: a missing file, an
// empty file, a file that is no database and a database without the schema
// are errors that name the path and the remedy (*MigrationMismatchError for the
// schema).
func Open(ctx context.Context, path string, o Options) (*Store, error) { panic("todo") }

// Close releases the file and every connection.
func (s *Store) Close() error { panic("todo") }

// Path is the path that Open was given.
func (s *Store) Path() string { panic("todo") }

// SameFile reports nil while the path still leads to the file that was opened,
// else ErrFileReplaced.
func (s *Store) SameFile() error { panic("todo") }

// Tenant returns a handle that sees one tenant only. An invalid name is an
// *InvalidEventError for field "tenant".
func (s *Store) Tenant(name string) (*Handle, error) { panic("todo") }

// AllTenants returns a handle over every tenant.
func (s *Store) AllTenants() *Handle { panic("todo") }

// Commits is a read connection that notices other connections' commits.
type Commits struct{ unimplemented }

// Commits opens a dedicated read connection. Close it.
func (s *Store) Commits(ctx context.Context) (*Commits, error) { panic("todo") }

// Version changes whenever another connection has committed (PRAGMA
// data_version). It takes no lock that a writer could notice.
func (c *Commits) Version(ctx context.Context) (int64, error) { panic("todo") }

// Close releases the connection.
func (c *Commits) Close() error { panic("todo") }

// Due says what a claim would find.
type Due struct {
	Now   time.Time // the database's clock
	Ready bool      // something is claimable now
	Next  time.Time // else the earliest due or expiry time; zero: none
}

// Due looks from a read connection, taking no writer lock.
func (h *Handle) Due(ctx context.Context) (Due, error) { panic("todo") }
