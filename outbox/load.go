package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// claimBatch is what a claim has read and not yet written.
type claimBatch struct {
	rows   []Claimed
	stored []any // each row's claim_token as it stands
	errs   []BadRow
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

// loadSQL reads candidates in the order of the list ?1. The joins are nested as they
// are written: with statistics the planner might turn them around and read
// whole tables.
const loadSQL = `
SELECT ` + eventColumnsSQL + `, e.row_id, d.event_row_id, d.state, d.attempts, d.claim_token, d.last_failure_code
FROM json_each(?1) AS j CROSS JOIN dovecote_deliveries AS d NOT INDEXED
LEFT JOIN dovecote_events AS e NOT INDEXED ON e.row_id = d.event_row_id AND e.tenant_id = d.tenant_id
WHERE d.event_row_id = j.value`

// load reads and decodes the candidates, up to maxBytes of data, in their
// order.
func load(ctx context.Context, t *txn, found []candidate, maxBytes int64) (*claimBatch, error) {
	rows, err := t.query(ctx, loadSQL, idList(found))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	b := &claimBatch{rows: make([]Claimed, 0, len(found)), stored: make([]any, 0, len(found))}
	var in claimRow
	dest := in.dest()
	total := int64(0)
	for _, want := range found {
		in.row = 0
		if rows.Next() {
			if err := rows.Scan(dest...); err != nil {
				return nil, err
			}
		}
		if in.row != want.row {
			return nil, cmp.Or(rows.Err(), fmt.Errorf("row %d vanished while it was being claimed", want.row))
		}
		c, err := in.claimed()
		if err != nil {
			b.bad(in.row, err)
			continue
		}
		if total += int64(len(c.Event.Data.bytes)); maxBytes > 0 && total > maxBytes && len(b.rows) > 0 {
			break
		}
		b.rows, b.stored = append(b.rows, c), append(b.stored, in.token)
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	return b, ctx.Err()
}

// idList is the row ids as a JSON array.
func idList(found []candidate) string {
	b := make([]byte, 0, 10*len(found)+2)
	for i, c := range found {
		b = append(b, "[,"[min(i, 1)])
		b = strconv.AppendInt(b, c.row, 10)
	}
	return string(append(b, ']'))
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
		if _, err := io.ReadFull(s.options.Entropy, raw); err != nil {
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
