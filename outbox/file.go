package outbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FileError reports a file that cannot be used as an outbox as it is. Nothing
// was created or changed.
type FileError struct {
	Path    string // the file, or the directory that is in the way
	Problem string
	Remedy  string
	Err     error // may be nil
}

func (e *FileError) Error() string {
	s := e.Path + ": " + e.Problem
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

func (e *FileError) Unwrap() error { return e.Err }

// ErrEmptyFile is inside the *FileError for a file of no bytes.
var ErrEmptyFile = errors.New("empty file")

// statDatabase looks at the file without opening it: closing a descriptor of a
// database drops every POSIX lock that the process holds on it.
func statDatabase(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &FileError{path, "no such database file", "run `relay migrate --create` to make one", fs.ErrNotExist}
	case errors.Is(err, fs.ErrPermission):
		return nil, &FileError{path, "permission denied", "let this user search the directory and read the file", err}
	case err != nil:
		return nil, &FileError{path, "cannot be read: " + err.Error(), "", err}
	case info.IsDir():
		return nil, &FileError{path, "is a directory", "name the database file", nil}
	case !info.Mode().IsRegular():
		return nil, &FileError{path, "is not a regular file", "name the database file", nil}
	case info.Size() == 0:
		return nil, &FileError{path, "the file is empty", "run `relay migrate --create` to make it an outbox", ErrEmptyFile}
	}
	if err := readable(path); errors.Is(err, fs.ErrPermission) {
		return nil, &FileError{path, "the database file cannot be read: permission denied", "let this user read the file", err}
	}
	return info, nil
}

// checkWritable reports what keeps SQLite from writing: the file, or the directory,
// where it makes its -wal, -shm and -journal files.
func checkWritable(path string) error {
	if err := writable(path, false); err != nil {
		return &FileError{path, "the database file cannot be written: " + err.Error(), "let the relay's user write it", err}
	}
	dir := filepath.Dir(path)
	if err := writable(dir, true); err != nil {
		return &FileError{dir, fmt.Sprintf("the directory of %s cannot be written: %v", filepath.Base(path), err),
			"SQLite makes files beside the database; let the relay's user write the directory", err}
	}
	return nil
}

// usesWAL reads the journal mode from the file's header. It opens the file, which
// statDatabase says not to do; a user who cannot write the file has no locks on it
// worth keeping.
func usesWAL(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	const readVersion = 19 // offset in the header; 2 is WAL
	var b [1]byte
	_, err = f.ReadAt(b[:], readVersion)
	return err == nil && b[0] == 2
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
