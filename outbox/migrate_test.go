package outbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func create(tb testing.TB, path string) {
	tb.Helper()
	if _, err := Migrate(context.Background(), path, MigrateOptions{Create: true}); err != nil {
		tb.Fatal(err)
	}
}

func TestMigrateCreatesAndIsIdempotent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	m, err := Migrate(t.Context(), path, MigrateOptions{Create: true})
	if err != nil || !m.Created || m.From != 0 || m.To != 2 || len(m.Steps) != 2 {
		t.Fatalf("first: %+v, %v", m, err)
	}
	m, err = Migrate(t.Context(), path, MigrateOptions{Create: true, AddIndexes: true})
	if err != nil || m.Created || m.From != 2 || len(m.Steps) != 0 {
		t.Fatalf("again: %+v, %v", m, err)
	}
}

func TestMigrateTwoAtOnce(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "a.db")
		var wg sync.WaitGroup
		made := make([]Migrated, 4)
		errs := make([]error, 4)
		for i := range made {
			wg.Go(func() { made[i], errs[i] = Migrate(t.Context(), path, MigrateOptions{Create: true}) })
		}
		wg.Wait()
		steps := 0
		for i := range made {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			steps += len(made[i].Steps)
		}
		if steps != 2 {
			t.Fatalf("the schema was made %d times: %+v", steps/2, made)
		}
	}
}

func TestOpenRefusesWhatIsNoOutbox(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	text := make([]byte, 4096)
	copy(text, "this is no database")
	for _, tc := range []struct {
		name, path string
		is         func(error) bool
	}{
		{"missing file", filepath.Join(dir, "missing.db"), func(err error) bool {
			return errors.Is(err, fs.ErrNotExist) && errors.As(err, new(*FileError))
		}},
		{"empty file", write("empty.db", nil), func(err error) bool { return errors.Is(err, ErrEmptyFile) }},
		{"text file", write("text.db", text), func(err error) bool { return FaultOf(err) == FaultDamaged && errors.As(err, new(*FileError)) }},
		{"directory", dir, func(err error) bool { return errors.As(err, new(*FileError)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, ro := range []bool{false, true} {
				s, err := Open(t.Context(), tc.path, Options{ReadOnly: ro})
				if err == nil {
					s.Close()
				}
				if err == nil || !tc.is(err) {
					t.Fatalf("read-only %v: %v", ro, err)
				}
			}
		})
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("files left behind: %v, %v", names, err)
	}
}

func TestOpenPaths(t *testing.T) {
	for _, name := range []string{
		"plain.db", "with blank.db", "a?b.db", "a#b.db", "a%20b.db", "a%b.db", "größe.db", "a&b=c.db", "a'b\"c.db", "a;b.db", "\xff.db", ":memory:",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			for _, path := range []string{name, filepath.Join(dir, name)} {
				create(t, path)
				s, err := Open(t.Context(), path, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.SameFile(); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != name {
				t.Fatalf("%v, %v", entries, err)
			}
		})
	}
}
