package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-relay/relay/outbox"
)

// exportLine is one row with its event, as export writes it, import reads it
// and show begins.
type exportLine struct {
	rowReport
	Event eventReport `json:"event"`
}

func newExportLine(e *outbox.Entry) exportLine {
	return exportLine{newRowReport(e), newEventReport(&e.Event)}
}

func (a *app) exportCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "export",
		Short: "Write a consistent snapshot of the outbox as JSON lines",
		Long: `export writes every row of one moment, an event with its delivery a line, in the
order of row ids. Data is in base64 and extensions carry their types, so that
relay import makes the same events again. Claim tokens are not exported. The lines
go to standard output, or to a file that appears when it is complete. Rows that
cannot be decoded are written as far as they can be read, and make the exit code 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.export(cmd.Context(), output) },
	}
	c.Flags().StringVar(&output, "output", "", "write to this `file` instead of standard output")
	return a.withDB(c)
}

func (a *app) export(ctx context.Context, output string) error {
	_, store, handle, err := a.open(ctx, reads)
	if err != nil {
		return err
	}
	defer store.Close()
	if output == "" {
		_, err := a.exportTo(ctx, handle, a.stdout)
		return err
	}
	rows, err := a.exportFile(ctx, handle, output)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"rows": rows, "file": output})
	}
	return a.printf("%d rows in %s\n", rows, output)
}

// exportFile writes beside output and renames at the end, so that no half
// snapshot can be taken for one.
func (a *app) exportFile(ctx context.Context, h *outbox.Handle, output string) (int64, error) {
	f, err := os.CreateTemp(filepath.Dir(output), filepath.Base(output)+".part*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	defer f.Close()
	rows, err := a.exportTo(ctx, h, f)
	if incomplete := (*undecodedError)(nil); err != nil && !errors.As(err, &incomplete) {
		return rows, err
	}
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(f.Name(), output)); err != nil {
		return rows, err
	}
	return rows, err
}

// undecodedError reports rows that the export has only in part.
type undecodedError struct{ Rows, First int64 }

func (e *undecodedError) Error() string {
	return fmt.Sprintf("%d rows cannot be decoded and are incomplete in the export (first row %d)", e.Rows, e.First)
}

// exportTime bounds how long an export may hold its read transaction.
const exportTime = 24 * time.Hour

func (a *app) exportTo(ctx context.Context, h *outbox.Handle, w io.Writer) (int64, error) {
	snapshot, err := h.Snapshot(ctx, outbox.SnapshotOptions{MaxPages: 1 << 40, MaxTime: exportTime})
	if err != nil {
		return 0, err
	}
	defer snapshot.Close()
	progress := a.progress("export", -1)
	defer progress.end()
	out := bufio.NewWriterSize(w, 1<<20)
	var rows int64
	undecoded := undecodedError{}
	for {
		page, err := snapshot.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return rows, err
		}
		for i := range page {
			e := &page[i]
			if e.DecodeErr != nil {
				if undecoded.Rows == 0 {
					undecoded.First = e.Row
				}
				undecoded.Rows++
			}
			if err := writeJSON(out, newExportLine(e)); err != nil {
				return rows, err
			}
		}
		rows += int64(len(page))
		progress.add(len(page))
	}
	if err := out.Flush(); err != nil {
		return rows, err
	}
	if undecoded.Rows > 0 {
		return rows, &undecoded
	}
	return rows, nil
}
