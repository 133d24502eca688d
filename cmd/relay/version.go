package main

import (
	"cmp"
	"database/sql"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	_ "modernc.org/sqlite" // tells its version

	"github.com/outbox-relay/relay/migrations"
)

// Set by the linker (-X main.version=… -X main.commit=…); otherwise taken from
// the build information.
var version, commit string

type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	SQLite  string `json:"sqlite"`
	Schema  int    `json:"schema"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit, Go, SQLite and schema versions",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			r, err := readVersion()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			return a.printf("relay %s\ncommit %s\ngo %s %s/%s\nsqlite %s\nschema %d\n",
				r.Version, r.Commit, r.Go, runtime.GOOS, runtime.GOARCH, r.SQLite, r.Schema)
		},
	}
}

func readVersion() (versionReport, error) {
	r := versionReport{Go: runtime.Version(), Schema: migrations.Version}
	r.Version, r.Commit = buildVersion()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return r, err
	}
	defer db.Close()
	return r, db.QueryRow("SELECT sqlite_version()").Scan(&r.SQLite)
}

// buildVersion is this program's version and commit.
func buildVersion() (v, c string) {
	v, c = version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
		c = cmp.Or(c, buildCommit(info))
	}
	return cmp.Or(v, "(devel)"), c
}

func buildCommit(info *debug.BuildInfo) string {
	revision, modified := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	return revision + modified
}
