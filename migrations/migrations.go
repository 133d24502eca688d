// Package migrations holds the DDL of the outbox schema.
package migrations

import _ "embed"

// Version is the schema version that Outbox creates.
const Version = 2

// Outbox creates the tables, their keys and the marker row of an empty
// schema. It is not idempotent: run it in a transaction that has looked.
//
//go:embed 0001_outbox.sql
var Outbox string

// Indexes creates the indexes of claims, those that are missing. A file that
// another library installed works without them.
//
//go:embed 0002_indexes.sql
var Indexes string
