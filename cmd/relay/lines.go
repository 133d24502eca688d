package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/outbox-relay/relay/outbox"
)

// lineReader reads NDJSON, one object a line. Blank lines count but are skipped.
type lineReader struct {
	r     *bufio.Reader
	limit int // bytes in one line
	line  int // of the line last returned, from 1
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the next line that is not blank, or io.EOF. The caller may keep it.
func (l *lineReader) next() ([]byte, error) {
	for {
		text, err := l.read()
		if err != nil {
			return nil, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return text, nil
		}
	}
}

func (l *lineReader) read() ([]byte, error) {
	var text []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(text) == 0 && (len(part) > 0 || err == nil) {
			l.line++
		}
		text = append(text, part...)
		switch {
		case len(text) > l.limit:
			return nil, &inputError{Line: l.line, Err: fmt.Errorf("is longer than %d bytes", l.limit)}
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		case err != nil:
			return nil, err
		default:
			return text, nil
		}
	}
}

// batch is lines of input, parsed, with their numbers.
type batch[T any] struct {
	items []T
	lines []int
}

// first is the number of the first line, 0 without any.
func (b *batch[T]) first() int {
	if len(b.lines) == 0 {
		return 0
	}
	return b.lines[0]
}

// readBatch reads up to size lines. The error is io.EOF after the last line, with what
// came before it.
func readBatch[T any](lines *lineReader, size int, parse func([]byte) (T, error)) (batch[T], error) {
	var b batch[T]
	for len(b.items) < size {
		text, err := lines.next()
		if errors.Is(err, io.EOF) {
			return b, io.EOF
		}
		var item T
		if err == nil {
			item, err = parse(text)
		}
		if err != nil {
			return b, inLine(lines.line, b.first(), err)
		}
		b.items, b.lines = append(b.items, item), append(b.lines, lines.line)
	}
	return b, nil
}

// eachBatch parses lines and writes them size at a time: a batch is read before
// it is written, so that no transaction waits for input. write is all or nothing
// and calls at with the index of the item at work, -1 for none. An *inputError
// names the line.
func eachBatch[T any](lines *lineReader, size int, parse func([]byte) (T, error), write func(items []T, at func(int)) error) error {
	for {
		b, end := readBatch(lines, size, parse)
		if end != nil && end != io.EOF {
			return end
		}
		if len(b.items) > 0 {
			line := b.first()
			at := func(i int) {
				line = b.first()
				if i >= 0 {
					line = b.lines[i]
				}
			}
			if err := write(b.items, at); err != nil {
				return inLine(line, b.first(), err)
			}
		}
		if end == io.EOF {
			return nil
		}
	}
}

// inLine says where err happened.
func inLine(line, first int, err error) error {
	var bad *inputError
	if errors.As(err, &bad) {
		bad.First = first
		return bad
	}
	return &inputError{Line: line, First: first, Err: err}
}

// inputError reports a bad line of input.
type inputError struct {
	Line  int
	Err   error
	Done  map[string]int // what earlier batches did, by outcome
	First int            // first line of the batch that was not written; 0: none was open
}

func (e *inputError) Error() string {
	s := fmt.Sprintf("line %d: %v", e.Line, e.Err)
	if e.First > 0 && e.First < e.Line {
		s += fmt.Sprintf("; nothing from line %d on was written", e.First)
	}
	return s
}

func (e *inputError) Unwrap() error { return e.Err }

// field is the part of the event that is wrong, if the error knows it.
func (e *inputError) field() string {
	var invalid *outbox.InvalidEventError
	var member *fieldError
	switch {
	case errors.As(e.Err, &invalid):
		return invalid.Field
	case errors.As(e.Err, &member):
		return member.Field
	}
	return ""
}
