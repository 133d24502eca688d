package relay

import (
	"context"

	"github.com/outbox-relay/relay/outbox"
)

// Outbox is what the relay needs of the file. Options.Store and Options.Handle
// together are one.
type Outbox interface {
	// Exchange settles batch and then claims, in one transaction. An error
	// means that neither happened, also when ctx ended it.
	Exchange(ctx context.Context, batch []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error)
	// SetAside quarantines rows that a claim could not hand out.
	SetAside(ctx context.Context, rows []outbox.BadRow) ([]int64, error)
	// Due looks for due rows without the writer slot.
	Due(ctx context.Context) (outbox.Due, error)
	// Stats counts without the writer slot.
	Stats(ctx context.Context) (outbox.Stats, error)
	// Prune removes old rows in bounded transactions.
	Prune(ctx context.Context, r outbox.PruneRequest) (outbox.Pruned, error)
	// Commits opens a connection that notices other connections' commits.
	Commits(ctx context.Context) (Commits, error)
	// SameFile is ErrFileReplaced once the path leads elsewhere, and an
	// *outbox.FileError once the file holds something else than a database.
	SameFile() error
	// Path names the file in errors and for the file watch.
	Path() string
}

// Commits notices commits: Version changes whenever another connection has
// committed.
type Commits interface {
	Version(ctx context.Context) (int64, error)
	Close() error
}

// file is the Outbox of a real file.
type file struct {
	handle *outbox.Handle
	store  *outbox.Store
}

func (f file) Exchange(ctx context.Context, batch []outbox.Settlement, claim outbox.ClaimRequest) (outbox.Exchanged, error) {
	return f.handle.Exchange(ctx, batch, claim)
}

func (f file) SetAside(ctx context.Context, rows []outbox.BadRow) ([]int64, error) {
	return f.handle.SetAside(ctx, rows)
}

func (f file) Due(ctx context.Context) (outbox.Due, error) { return f.handle.Due(ctx) }

// Stats leaves out what a relay does not tell of, so that its cost does not grow
// with what has been delivered.
func (f file) Stats(ctx context.Context) (outbox.Stats, error) { return f.handle.Backlog(ctx) }

func (f file) Prune(ctx context.Context, r outbox.PruneRequest) (outbox.Pruned, error) {
	return f.handle.Prune(ctx, r)
}

func (f file) Commits(ctx context.Context) (Commits, error) { return f.store.Commits(ctx) }
func (f file) Path() string                                 { return f.store.Path() }

func (f file) SameFile() error {
	if err := f.store.SameFile(); err != nil {
		return err
	}
	return f.store.CheckHeader(context.Background())
}
