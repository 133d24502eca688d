package outbox

import (
	"fmt"
	"path/filepath"
	"strings"
)

// fileURI is path as SQLite's URI with the given query, each pragma in it, so
// that every pooled connection has them.
func fileURI(path string, query ...string) string {
	var b strings.Builder
	b.WriteString("file://")
	p := filepath.ToSlash(path)
	if !strings.HasPrefix(p, "/") {
		b.WriteByte('/')
	}
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("/._-~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	b.WriteByte('?')
	b.WriteString(strings.Join(query, "&"))
	return b.String()
}

// absolute makes path independent of the working directory. It does not clean
// it: "link/.." may lead elsewhere than its text says.
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	return dir + string(filepath.Separator) + path, nil
}

// Pragmas of the connections. A connection's own page cache is bounded, and the
// file is not mapped: a mapped read of a truncated file is a signal, not an error.
const (
	pragmaForeignKeys = "_pragma=foreign_keys(1)"
	pragmaNoMap       = "_pragma=mmap_size(0)"
	pragmaNoWait      = "_pragma=busy_timeout(0)"
	pragmaQueryOnly   = "_pragma=query_only(1)"
	pragmaReadCache   = "_pragma=cache_size(-2048)"
	pragmaWriteCache  = "_pragma=cache_size(-8192)"
	// What a savepoint may have to undo is a few dozen pages: no file for it.
	pragmaTempMemory = "_pragma=temp_store(2)"
	// Checkpoints are made by the writer itself, see writer.checkpoint.
	pragmaNoCheckpoint = "_pragma=wal_autocheckpoint(0)"
	// After a checkpoint a write-ahead log that a long reader let grow is cut
	// back to this many bytes.
	pragmaLogLimit = "_pragma=journal_size_limit(50331648)"
)

// writerURI waits for locks in this package (see busyPolicy), not in SQLite.
func writerURI(path, mode, synchronous string) string {
	return fileURI(path, "mode="+mode, pragmaNoWait, pragmaForeignKeys, pragmaNoMap, pragmaWriteCache, pragmaTempMemory, pragmaLogLimit, pragmaNoCheckpoint,
		"_pragma=synchronous("+synchronous+")")
}

func readerURI(path, mode string, busyTimeoutMS int64) string {
	return fileURI(path, mode, fmt.Sprintf("_pragma=busy_timeout(%d)", busyTimeoutMS),
		pragmaForeignKeys, pragmaNoMap, pragmaReadCache, pragmaQueryOnly)
}
