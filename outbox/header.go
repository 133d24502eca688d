package outbox

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
)

const headerSQL = `PRAGMA schema_version`

// CheckHeader reports a *FileError when the file no longer begins as a database
// does, because somebody wrote something else into it. Connections that stand
// would not notice for long: they read from their caches and from the log. It
// takes no lock, and looks only when the file's time or size has changed since
// it last was good. What cannot be told for certain is nil.
func (s *Store) CheckHeader(ctx context.Context) error {
	info, err := os.Stat(s.file)
	if err != nil {
		return nil // for SameFile to judge
	}
	if last := s.good.Load(); last != nil && sameStat(*last, info) {
		return nil
	}
	if info.Size() == 0 {
		return &FileError{s.path, "the file has become empty", "restore it from a backup", ErrEmptyFile}
	}
	// The header itself, past the log. A damage other than to the header can be a
	// checkpoint under way.
	if err := s.readHeader(ctx); err != nil {
		if code, ok := codeOf(err); ok && code&0xff == codeNotADB {
			return notADatabase(s.path, err)
		}
		return nil
	}
	s.good.Store(&info)
	return nil
}

func sameStat(a, b fs.FileInfo) bool { return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) }

// readHeader goes through SQLite, for closing a descriptor of our own would drop
// the process's locks on the file.
func (s *Store) readHeader(ctx context.Context) error {
	c, err := s.options.Driver(fileURI(s.file, "mode=ro&immutable=1"))
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	var version int64
	err = db.QueryRowContext(ctx, headerSQL).Scan(&version)
	return errors.Join(err, db.Close())
}
