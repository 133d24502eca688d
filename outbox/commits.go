package outbox

import (
	"context"
	"database/sql"
	"time"
)

// Commits is a read connection that notices other connections' commits.
type Commits struct {
	pool *sql.DB
	stmt *sql.Stmt
}

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
