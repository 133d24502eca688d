// Package migrations holds the DDL of the outbox schema.
package migrations

import "embed"

// FS holds the migration files, applied in name order.
//
//go:embed *.sql
var FS embed.FS
