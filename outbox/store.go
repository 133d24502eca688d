package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
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
	// ReadOnly refuses every write with ErrReadOnly. The file is still opened
	// read-write where permissions allow, so that SQLite removes its own side
	// files.
	ReadOnly bool
	// OnBusy, when set, is called on every unsuccessful try for the writer
	// slot, with the time waited so far in this operation. It must not block.
	OnBusy func(waited time.Duration)
	// Entropy supplies claim tokens. Nil means crypto/rand.
	Entropy io.Reader
	// Now, when set, replaces the database's clock (tests only).
	Now func() time.Time
	// Driver, when set, makes the connections to dsn in place of the built-in
	// driver, around which it may wrap faults or traces (tests only).
	Driver func(dsn string) (driver.Connector, error)
}

// Store is an open outbox file. Safe for concurrent use.
type Store struct {
	path    string // as given
	file    string // absolute
	info    fs.FileInfo
	options Options
	reader  driver.Connector
	reads   *sql.DB
	writer  *writer // nil: read-only
	probe   *pinned // for Due
	entropy sync.Mutex
	deep    atomic.Bool // the last claim found as many rows as it asked for
	indexed atomic.Pointer[indexes]
	good    atomic.Pointer[fs.FileInfo] // when CheckHeader was content
}

// maxReaders bounds the connections that read at once.
const maxReaders = 4

// Open opens an existing outbox file. It creates nothing: a missing file, an
// empty file, a file that is no database (all *FileError) and a database
// without the schema (*MigrationMismatchError) are errors that name the path and the
// remedy. Unless read-only, it turns the file to write-ahead logging, for good,
// where that is possible.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Store{path: path, options: o}
	var err error
	if s.file, err = absolute(path); err != nil {
		return nil, err
	}
	if s.info, err = statDatabase(s.file); err != nil {
		return nil, named(path, err)
	}
	if !o.ReadOnly {
		if err := checkWritable(s.file); err != nil {
			return nil, err
		}
	}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// named puts the path as given into a FileError for the file itself.
func named(path string, err error) error {
	var fe *FileError
	if errors.As(err, &fe) {
		fe.Path = path
	}
	return err
}

func (o *Options) complete() error {
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 5 * time.Second
	}
	switch {
	case o.BusyRetries == 0:
		o.BusyRetries = 3
	case o.BusyRetries < 0:
		o.BusyRetries = 0
	}
	if o.Synchronous == "" {
		o.Synchronous = "normal"
	}
	if o.Synchronous != "normal" && o.Synchronous != "full" && o.Synchronous != "extra" {
		return fmt.Errorf("synchronous %q: want normal, full or extra", o.Synchronous)
	}
	if o.Entropy == nil {
		o.Entropy = rand.Reader
	}
	if o.Driver == nil {
		o.Driver = sqlite.NewConnector
	}
	return nil
}

func (o *Options) policy() busyPolicy {
	return busyPolicy{timeout: o.BusyTimeout, retries: o.BusyRetries, onBusy: o.OnBusy}
}

// open makes the pools and looks at the schema.
func (s *Store) open(ctx context.Context) error {
	c, err := s.options.Driver(readerURI(s.file, s.readMode(), s.options.BusyTimeout.Milliseconds()))
	if err != nil {
		return err
	}
	s.reader = guarded{c, s.SameFile}
	s.reads = sql.OpenDB(s.reader)
	s.reads.SetMaxOpenConns(maxReaders)
	s.reads.SetMaxIdleConns(maxReaders)
	s.probe = pin(s.reader)
	if err := s.checkFile(ctx); err != nil {
		return err
	}
	if s.options.ReadOnly {
		return nil
	}
	c, err = s.options.Driver(writerURI(s.file, "rw", s.options.Synchronous))
	if err != nil {
		return err
	}
	s.writer = newWriter(guarded{c, s.SameFile}, s.options.policy(), s.options.Now)
	s.writer.ownsLog = true
	return s.writer.useWAL(ctx)
}

// readMode is how read connections open the file. Read-write lets SQLite
// recover a log and remove its side files; where this user may not write, reading
// must do without. A log of its own would then be left behind, and its owner
// could not write it; so a file in that mode, but with no log, is read as it stands.
func (s *Store) readMode() string {
	switch {
	case !s.options.ReadOnly || checkWritable(s.file) == nil:
		return "mode=rw"
	case usesWAL(s.file) && !exists(s.file+"-wal") && !exists(s.file+"-shm"):
		return "mode=ro&immutable=1"
	}
	return "mode=ro"
}

// checkFile reads the file for the first time.
func (s *Store) checkFile(ctx context.Context) error {
	err := s.read(ctx, "open", func(ctx context.Context, t *txn) error {
		return checkSchema(ctx, t.conn, s.path)
	})
	if FaultOf(err) == FaultDamaged {
		return notADatabase(s.path, err)
	}
	return err
}

func notADatabase(path string, err error) error {
	return &FileError{path, "the file is no SQLite database, or it is damaged", "name the right file, or restore it from a backup", err}
}

// Close releases the file and every connection. It waits for a write that is
// under way.
func (s *Store) Close() error {
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.reads != nil {
		errs = append(errs, s.probe.close(), s.reads.Close())
	}
	return errors.Join(errs...)
}

// Path is the path that Open was given.
func (s *Store) Path() string { return s.path }

// SameFile reports nil while the path still leads to the file that was opened,
// else ErrFileReplaced.
func (s *Store) SameFile() error {
	info, err := os.Stat(s.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", s.path, ErrFileReplaced)
	case err != nil:
		return fmt.Errorf("%s: %w", s.path, err)
	case !os.SameFile(info, s.info):
		return fmt.Errorf("%s: %w", s.path, ErrFileReplaced)
	}
	return nil
}

// guarded refuses connections once the path leads to another file.
type guarded struct {
	driver.Connector
	same func() error
}

// Connect opens a connection and then looks whether it can be to the right file.
func (g guarded) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := g.Connector.Connect(ctx)
	moved := g.same()
	switch {
	case err != nil && moved != nil:
		return nil, fmt.Errorf("%w: %w", moved, err)
	case err != nil:
		return nil, err
	case moved != nil:
		return nil, errors.Join(moved, c.Close())
	}
	return c, nil
}

// ErrReadOnly reports a write on a store that was opened read-only.
var ErrReadOnly = errors.New("the store was opened read-only")

// write runs fn in a writer transaction; see writer.write.
func (s *Store) write(ctx context.Context, op string, fn func(context.Context, *txn) error) (time.Duration, error) {
	if s.writer == nil {
		return 0, fmt.Errorf("%s: %w", op, ErrReadOnly)
	}
	return s.writer.write(ctx, op, fn)
}

// read runs fn in a read transaction. Its statements are cancelled with ctx.
// The operation time is read just before the transaction's snapshot.
func (s *Store) read(ctx context.Context, op string, fn func(context.Context, *txn) error) error {
	t, err := s.beginRead(ctx, op)
	if err != nil {
		return err
	}
	defer t.end()
	return readError(op, fn(ctx, t))
}

// beginRead opens a read transaction that the caller ends.
func (s *Store) beginRead(ctx context.Context, op string) (*txn, error) {
	conn, err := s.reads.Conn(ctx)
	if err != nil {
		return nil, readError(op, err)
	}
	t := &txn{op: op, conn: conn}
	_, err = conn.ExecContext(ctx, `BEGIN`)
	if err == nil {
		err = t.readClock(ctx, s.options.Now)
	}
	if err != nil {
		t.end()
		return nil, readError(op, err)
	}
	return t, nil
}

// end ends a read transaction and gives its connection back.
func (t *txn) end() {
	if _, err := t.conn.ExecContext(context.Background(), rollbackSQL); err != nil {
		discard(t.conn)
		return
	}
	t.conn.Close()
}

// readError names the operation. A reader's wait is the driver's own, so a busy
// error is final here.
func readError(op string, err error) error {
	if FaultOf(err) == FaultBusy && !errors.Is(err, ErrBusyExhausted) {
		err = fmt.Errorf("%w: %w", ErrBusyExhausted, err)
	}
	return wrapSQL(op, err)
}
