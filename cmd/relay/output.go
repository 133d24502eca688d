package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
)

// printJSON writes v as one line.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printf writes text for a person.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format, args...)
	return err
}

// table aligns the columns of what is written to it. Flush it.
func (a *app) table() *tabwriter.Writer {
	return tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
}
