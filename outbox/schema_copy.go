package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // the copy's driver
)

// schemaCopy is an empty copy of a file's outbox tables in memory, where their
// constraints can be tried out without writing to the file.
type schemaCopy struct {
	db       *sql.DB
	conn     *sql.Conn
	inserts  map[string]*sql.Stmt // by text
	problems []string
	slow     bool
	err      error // the first failure that is no finding
}

// copySchema builds the copy from the definitions as the file has them. A
// definition that cannot be built is a problem of the copy, not an error.
func copySchema(ctx context.Context, defs definitions) (*schemaCopy, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, &SQLError{"open schema copy", err}
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, &SQLError{"open schema copy", err}
	}
	c := &schemaCopy{db: db, conn: conn, inserts: make(map[string]*sql.Stmt)}
	for _, d := range defs {
		if d.sql == "" {
			continue
		}
		if !singleStatement(d.sql) {
			c.problem("%s %s: its definition is not a single statement", d.kind, d.name)
			continue
		}
		if _, err := c.conn.ExecContext(ctx, d.sql); err != nil {
			c.problem("%s %s: its definition cannot be built: %v", d.kind, d.name, err)
		}
	}
	return c, ctx.Err()
}

func (c *schemaCopy) close() {
	for _, stmt := range c.inserts {
		stmt.Close()
	}
	c.conn.Close()
	c.db.Close()
}

func (c *schemaCopy) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// must runs what no schema can make fail.
func (c *schemaCopy) must(ctx context.Context, query string) {
	_, err := c.conn.ExecContext(ctx, query)
	c.failed(err)
}

// report sums the copy up.
func (c *schemaCopy) report(version int) schemaReport {
	r := schemaReport{version: version, problems: c.problems}
	switch {
	case len(r.problems) == 0:
	case c.slow && len(r.problems) == 1:
		r.slow = true
		r.remedy = "add them with `relay migrate --add-indexes`"
	default:
		r.remedy = "restore the schema; `relay migrate --create` makes a new file to compare with"
	}
	return r
}

// checkTables finds everything that the tables lack.
func (c *schemaCopy) checkTables(ctx context.Context) {
	ready := c.checkColumns(ctx)
	c.checkKeys(ctx)
	c.checkIndexes(ctx)
	if !ready {
		return // every row would be refused, or its key be another
	}
	c.probeEvents(ctx)
	c.probeDeliveries(ctx)
}

// singleStatement reports whether text is one CREATE statement. SQLite never
// stores another form, but a file can be made by hand, and what it says is run.
func singleStatement(text string) bool {
	if len(text) < 7 || !strings.EqualFold(text[:7], "CREATE ") {
		return false
	}
	for i := 0; i < len(text); i++ {
		end := byte(0)
		switch ch := text[i]; {
		case ch == ';':
			return false
		case ch == '\'', ch == '"', ch == '`':
			end = ch
		case ch == '[':
			end = ']'
		case strings.HasPrefix(text[i:], "--"):
			end = '\n'
		case strings.HasPrefix(text[i:], "/*"):
			j := strings.Index(text[i+2:], "*/")
			if j < 0 {
				return true
			}
			i += j + 3
		}
		if end == 0 {
			continue
		}
		j := strings.IndexByte(text[i+1:], end)
		if j < 0 {
			return end == '\n' // an unclosed quotation is for SQLite to refuse
		}
		i += j + 1
	}
	return true
}

// affinity is SQLite's column affinity.
type affinity string

const (
	textAffinity    affinity = "TEXT"
	integerAffinity affinity = "INTEGER"
	blobAffinity    affinity = "BLOB"
)

// affinityOf applies SQLite's rules to a declared type, in their order.
func affinityOf(declared string) affinity {
	d := strings.ToUpper(declared)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(d, p) })
	}
	switch {
	case has("INT"):
		return integerAffinity
	case has("CHAR", "CLOB", "TEXT"):
		return textAffinity
	case d == "", has("BLOB"):
		return blobAffinity
	case has("REAL", "FLOA", "DOUB"):
		return "REAL"
	}
	return "NUMERIC"
}

// columnSpec is what a column must be.
type columnSpec struct {
	name     string
	affinity affinity
	notNull  bool
}

var eventSpecs = []columnSpec{
	{"row_id", integerAffinity, false},
	{"tenant_id", textAffinity, true},
	{"stream", textAffinity, true},
	{"specversion", textAffinity, true},
	{"event_id", textAffinity, true},
	{"source", textAffinity, true},
	{"event_type", textAffinity, true},
	{"subject", textAffinity, false},
	{"occurred_at", textAffinity, false},
	{"datacontenttype", textAffinity, false},
	{"dataschema", textAffinity, false},
	{"partitionkey", textAffinity, false},
	{"extensions", textAffinity, true},
	{"data_kind", textAffinity, false},
	{"data", blobAffinity, false},
	{"enqueued_at", textAffinity, true},
}

var deliverySpecs = []columnSpec{
	{"event_row_id", integerAffinity, false},
	{"tenant_id", textAffinity, true},
	{"state", textAffinity, true},
	{"available_at", textAffinity, true},
	{"attempts", integerAffinity, true},
	{"claim_token", blobAffinity, false},
	{"claimed_by", textAffinity, false},
	{"claim_expires_at", textAffinity, false},
	{"last_failure_code", textAffinity, false},
	{"last_failure_detail", textAffinity, false},
	{"delivered_at", textAffinity, false},
	{"quarantined_at", textAffinity, false},
	{"quarantine_reason", textAffinity, false},
}

// tables are the two tables with their columns, the primary key first.
var tables = []struct {
	name  string
	specs []columnSpec
}{{"dovecote_events", eventSpecs}, {"dovecote_deliveries", deliverySpecs}}

// checkColumns finds missing tables, missing columns, wrong types, missing NOT
// NULLs and wrong primary keys. It reports whether rows can be written, all
// columns and keys being there.
func (c *schemaCopy) checkColumns(ctx context.Context) bool {
	ready := true
	for _, t := range tables {
		columns := c.columns(ctx, t.name)
		if len(columns) == 0 {
			c.problem("table %s is missing", t.name)
			ready = false
			continue
		}
		for i, spec := range t.specs {
			got, ok := columns[spec.name]
			switch {
			case !ok:
				c.problem("%s.%s: column is missing", t.name, spec.name)
				ready = false
				continue
			case affinityOf(got.declared) != spec.affinity:
				c.problem("%s.%s: declared %q, want type %s", t.name, spec.name, got.declared, spec.affinity)
			case spec.notNull && !got.notNull:
				c.problem("%s.%s: NOT NULL is missing", t.name, spec.name)
			}
			if (i == 0) != (got.key > 0) {
				c.problem("%s: the primary key is not %s", t.name, t.specs[0].name)
				ready = false
			}
		}
	}
	return ready
}

// columnInfo is a column as SQLite reports it; key is its place in the primary
// key, from 1.
type columnInfo struct {
	declared string
	notNull  bool
	key      int
}

const columnsSQL = `SELECT lower(name), type, "notnull", pk FROM pragma_table_info(?)`

// columns are the table's columns by lower-case name; none: no such table.
func (c *schemaCopy) columns(ctx context.Context, table string) map[string]columnInfo {
	columns := make(map[string]columnInfo)
	c.each(ctx, func(scan func(...any) error) error {
		var name string
		var info columnInfo
		if err := scan(&name, &info.declared, &info.notNull, &info.key); err != nil {
			return err
		}
		columns[name] = info
		return nil
	}, columnsSQL, table)
	return columns
}

// each calls row for every row of a query that no schema can make fail.
func (c *schemaCopy) each(ctx context.Context, row func(scan func(...any) error) error, query string, args ...any) {
	err := func() error {
		rows, err := c.conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}()
	c.failed(err)
}

// versionOne reports whether the tables are those of version 1: complete but
// for the tenant, which is absent or (in a prepared upgrade) may be NULL.
func (c *schemaCopy) versionOne(ctx context.Context) bool {
	for _, t := range tables {
		columns := c.columns(ctx, t.name)
		for _, spec := range t.specs {
			got, ok := columns[spec.name]
			if tenant := spec.name == "tenant_id"; tenant && ok && got.notNull || !tenant && !ok {
				return false
			}
		}
	}
	return true
}
