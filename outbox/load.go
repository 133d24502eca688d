package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// claimBatch is what a claim has read and not yet written.
type claimBatch struct {
	rows    []Claimed
	stored  []any // each row's claim_token as it stands
	errs    []BadRow
	history bool // some row has a past that its attempts do not tell of
}

func (b *claimBatch) bad(row int64, err error) {
	code := "undecodable"
	if _, ok := errors.AsType[*CounterOverflowError](err); ok {
		code = "counter_overflow"
	}
	b.errs = append(b.errs, BadRow{row, code, err})
}

func (b *claimBatch) verdict() error {
	if len(b.errs) == 0 {
		return nil
	}
	slices.SortFunc(b.errs, func(x, y BadRow) int { return cmp.Compare(x.Row, y.Row) })
	return &BadRowsError{b.errs}
}

const loadColumnsSQL = eventColumnsSQL + `, e.row_id, d.event_row_id, d.state, d.attempts, d.claim_token, d.last_failure_code`

// loadSQL reads candidates in the order of the list ?2. The joins are nested as they
// are written: with statistics the planner might turn them around and read
// whole tables.
const loadSQL = `
SELECT ` + loadColumnsSQL + `
FROM json_each(?2) AS j CROSS JOIN dovecote_deliveries AS d NOT INDEXED
LEFT JOIN dovecote_events AS e NOT INDEXED ON e.row_id = d.event_row_id AND e.tenant_id = d.tenant_id
WHERE d.event_row_id = j.value`

// loadOneSQL reads the candidate ?1. Statistics of a table with a few rows make
// SQLite prefer to go through the tables in a join; in a part that has one table
// they cannot.
const loadOneSQL = `
WITH d AS MATERIALIZED (SELECT * FROM dovecote_deliveries WHERE event_row_id = ?1),
  e AS MATERIALIZED (SELECT * FROM dovecote_events WHERE row_id = ?1)
SELECT ` + loadColumnsSQL + ` FROM d LEFT JOIN e ON e.tenant_id = d.tenant_id`

// loader reads one candidate after the other.
type loader struct {
	t    *txn
	rows *sql.Rows // nil: each is read by a query of its own
	in   claimRow
	dest []any
}

func openLoader(ctx context.Context, t *txn, found []candidate) (*loader, error) {
	l := &loader{t: t}
	l.dest = l.in.dest()
	whole, err := t.wholeSets(ctx, loadSQL)
	if err == nil && whole {
		l.rows, err = t.query(ctx, loadSQL, nil, idList(found, func(c *candidate) int64 { return c.row }))
	}
	return l, err
}

// read reads the next candidate, which is row, into l.in.
func (l *loader) read(ctx context.Context, row int64) error {
	l.in.row = 0
	var err error
	switch {
	case l.rows == nil:
		err = l.t.queryRow(ctx, loadOneSQL, row).Scan(l.dest...)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
	case l.rows.Next():
		err = l.rows.Scan(l.dest...)
	default:
		err = l.rows.Err()
	}
	if err == nil && l.in.row != row {
		err = fmt.Errorf("row %d: %w", row, vanished(1))
	}
	return err
}

func (l *loader) close() error {
	if l.rows == nil {
		return nil
	}
	return l.rows.Close()
}

// load reads and decodes the candidates, up to maxBytes of data, in their
// order.
func load(ctx context.Context, t *txn, found []candidate, maxBytes int64) (*claimBatch, error) {
	l, err := openLoader(ctx, t, found)
	if err != nil {
		return nil, err
	}
	defer l.close()
	b := &claimBatch{rows: make([]Claimed, 0, len(found)), stored: make([]any, 0, len(found))}
	total := int64(0)
	for _, want := range found {
		if err := l.read(ctx, want.row); err != nil {
			return nil, err
		}
		c, err := l.in.claimed()
		if err != nil {
			b.bad(want.row, err)
			continue
		}
		if total += int64(len(c.Event.Data.bytes)); maxBytes > 0 && total > maxBytes && len(b.rows) > 0 {
			break
		}
		b.history = b.history || c.Reclaimed || c.Attempts == 1 && l.in.failure != nil
		b.rows, b.stored = append(b.rows, c), append(b.stored, l.in.token)
	}
	if err := l.close(); err != nil {
		return nil, err
	}
	return b, ctx.Err()
}

// claimRow receives one row of loadSQL.
type claimRow struct {
	event                           eventColumns
	eventRow                        any
	row                             int64
	state, attempts, token, failure any
}

func (r *claimRow) dest() []any {
	return append(r.event.dest(), &r.eventRow, &r.row, &r.state, &r.attempts, &r.token, &r.failure)
}

// claimed is the claim that this row would become, still without its token.
func (r *claimRow) claimed() (Claimed, error) {
	if r.eventRow == nil {
		return Claimed{}, &SerializationError{r.row, "event_row_id", "no event of this tenant has this row id"}
	}
	attempts, ok := r.attempts.(int64)
	switch {
	case !ok || attempts < 0:
		return Claimed{}, &SerializationError{r.row, "attempts", "is not a count"}
	case attempts == math.MaxInt64:
		return Claimed{}, &CounterOverflowError{r.row}
	}
	e, enqueued, err := r.event.decode(r.row)
	if err != nil {
		return Claimed{}, err
	}
	failure, _ := r.failure.(string)
	return Claimed{
		Row: r.row, Attempts: attempts + 1, EnqueuedAt: enqueued, Event: e,
		Reclaimed: r.state == string(InClaim), LastFailure: failure,
	}, nil
}

// drawTokens gives each row a token that is neither its stored one nor another
// row's.
func (s *Store) drawTokens(b *claimBatch) error {
	raw := make([]byte, len(b.rows)*len(Token{}))
	for try := 0; ; try++ {
		s.entropy.Lock()
		_, err := io.ReadFull(s.options.Entropy, raw)
		s.entropy.Unlock()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrEntropyUnavailable, err)
		}
		if b.setTokens(raw) {
			return nil
		}
		if try == 3 {
			return fmt.Errorf("%w: the source repeats itself", ErrEntropyUnavailable)
		}
	}
}

// setTokens is false if a token is not new.
func (b *claimBatch) setTokens(raw []byte) bool {
	seen := make(map[Token]bool, len(b.rows))
	for i := range b.rows {
		token := Token(raw[i*len(Token{}):])
		var old string
		switch v := b.stored[i].(type) {
		case []byte:
			old = string(v)
		case string:
			old = v
		}
		if seen[token] || old == string(token[:]) {
			return false
		}
		seen[token] = true
		b.rows[i].Token = token
	}
	return true
}
