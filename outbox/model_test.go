package outbox_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbox-relay/relay/outbox"
)

// model is the outbox in memory: what each operation should answer, and leave.
type model struct {
	now  time.Time
	rows map[int64]*modelRow
	used map[outbox.Token]bool // every token that was ever handed out
}

// modelRow is an event with its delivery.
type modelRow struct {
	tenant, id  string
	variant     int  // which content
	undecodable bool // somebody spoiled the event

	state       outbox.State
	due         time.Time // available_at
	attempts    int64
	token       outbox.Token
	old         []outbox.Token // superseded
	expires     time.Time
	failure     string
	delivered   time.Time
	quarantined time.Time
	reason      string
}

// visible are the rows that a tenant's handle sees ("": all), by row id.
func (m *model) visible(tenant string) []int64 {
	var rows []int64
	for row, r := range m.rows {
		if tenant == "" || r.tenant == tenant {
			rows = append(rows, row)
		}
	}
	slices.Sort(rows)
	return rows
}

func (m *model) find(tenant string, row int64) *modelRow {
	if r := m.rows[row]; r != nil && (tenant == "" || r.tenant == tenant) {
		return r
	}
	return nil
}

// identity finds the row of an identity.
func (m *model) identity(tenant, id string) (int64, *modelRow) {
	for row, r := range m.rows {
		if r.tenant == tenant && r.id == id {
			return row, r
		}
	}
	return 0, nil
}

// candidate tells when the row is or was claimable from, if it is now.
func (m *model) candidate(r *modelRow) (from time.Time, ok bool) {
	switch r.state {
	case outbox.Pending:
		from = r.due
	case outbox.InClaim:
		from = r.expires
	default:
		return from, false
	}
	return from, !from.After(m.now)
}

// candidates are the rows that a claim would take, earliest due first.
func (m *model) candidates(tenant string, limit int) []int64 {
	var rows []int64
	for _, row := range m.visible(tenant) {
		if _, ok := m.candidate(m.rows[row]); ok {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b int64) int {
		from, _ := m.candidate(m.rows[a])
		other, _ := m.candidate(m.rows[b])
		return cmp.Or(from.Compare(other), cmp.Compare(a, b))
	})
	return rows[:min(limit, len(rows))]
}

// bad is the code of a row that cannot be handed out, "" for one that can.
func (r *modelRow) bad() string {
	switch {
	case r.attempts == math.MaxInt64:
		return "counter_overflow"
	case r.undecodable:
		return "undecodable"
	}
	return ""
}

// claimed compares a claim's answer with what it should be, and takes it over.
func (m *model) claimed(tenant string, r outbox.ClaimRequest, entropy bool, got []outbox.Claimed, err error) error {
	rows := m.candidates(tenant, r.Limit)
	slices.Sort(rows)
	var bad []string
	for _, row := range rows {
		if code := m.rows[row].bad(); code != "" {
			bad = append(bad, fmt.Sprint(row, code))
		}
	}
	switch {
	case len(rows) > len(bad) && !entropy:
		if !errors.Is(err, outbox.ErrEntropyUnavailable) {
			return fmt.Errorf("claim: %v, want no entropy", err)
		}
		return nil
	case len(bad) > 0:
		var named *outbox.BadRowsError
		if !errors.As(err, &named) || !slices.EqualFunc(named.Rows, bad, func(b outbox.BadRow, want string) bool { return fmt.Sprint(b.Row, b.Code) == want }) {
			return fmt.Errorf("claim: %v, want bad rows %v", err, bad)
		}
		return nil
	case err != nil:
		return fmt.Errorf("claim: %w", err)
	case !slices.Equal(rowsOf(got), append([]int64{}, rows...)):
		return fmt.Errorf("claimed %v, want %v", rowsOf(got), rows)
	}
	for _, c := range got {
		if err := m.rows[c.Row].take(m, c, r.Lease); err != nil {
			return fmt.Errorf("row %d: %w", c.Row, err)
		}
	}
	return nil
}

func (r *modelRow) take(m *model, c outbox.Claimed, lease time.Duration) error {
	reclaimed := r.state == outbox.InClaim
	if reclaimed {
		r.old = append(r.old, r.token)
	}
	r.state, r.attempts, r.token, r.expires = outbox.InClaim, r.attempts+1, c.Token, m.now.Add(lease)
	switch {
	case m.used[c.Token]:
		return errors.New("a token was handed out twice")
	case c.Attempts != r.attempts, c.Reclaimed != reclaimed, c.LastFailure != r.failure, !c.Expires.Equal(r.expires):
		return fmt.Errorf("%+v, want attempts %d, reclaimed %v, failure %q, expiry %v", c, r.attempts, reclaimed, r.failure, r.expires)
	case c.Event.Tenant != r.tenant, c.Event.ID != r.id, c.Event.Subject != variantSubject(r.variant):
		return fmt.Errorf("event %+v", c.Event)
	}
	m.used[c.Token] = true
	return nil
}

// settle is the outcome of one settlement, and its effect.
func (m *model) settle(tenant string, s outbox.Settlement) error {
	r := m.find(tenant, s.Row)
	switch {
	case r == nil:
		return outbox.ErrNotFound
	case r.state != outbox.InClaim:
		return &outbox.TransitionError{Row: s.Row, State: r.state}
	case r.token != s.Token || !r.expires.After(m.now):
		return outbox.ErrLostClaim
	case s.Action == outbox.Renew:
		r.expires = m.now.Add(s.Delay)
		return nil
	}
	r.old, r.token, r.expires = append(r.old, r.token), outbox.Token{}, time.Time{}
	switch s.Action {
	case outbox.Ack:
		r.state, r.delivered = outbox.Delivered, m.now
	case outbox.Retry:
		r.state, r.due, r.failure = outbox.Pending, m.now.Add(s.Delay), s.Failure.Code
	case outbox.Release:
		r.state, r.due = outbox.Pending, m.now.Add(s.Delay)
	case outbox.Quarantine:
		r.state, r.quarantined, r.reason = outbox.Quarantined, m.now, s.Reason
	}
	return nil
}

// operate is the outcome of an operator's action on a row that must be in a state.
func (m *model) operate(tenant string, row int64, from outbox.State, act func(*modelRow)) error {
	r := m.find(tenant, row)
	switch {
	case r == nil:
		return outbox.ErrNotFound
	case r.state != from:
		return &outbox.TransitionError{Row: row, State: r.state}
	}
	act(r)
	return nil
}

func (m *model) requeue(tenant string, row int64) error {
	return m.operate(tenant, row, outbox.Quarantined, func(r *modelRow) {
		r.state, r.due, r.attempts, r.quarantined, r.reason = outbox.Pending, m.now, 0, time.Time{}, ""
		r.failure = cmp.Or(r.failure, outbox.RequeuedCode)
	})
}

func (m *model) dismiss(tenant string, row int64, reason string) error {
	return m.operate(tenant, row, outbox.Pending, func(r *modelRow) {
		r.state, r.quarantined, r.reason = outbox.Quarantined, m.now, "operator: "+reason
	})
}

// setAside quarantines those of the rows that are claimable, and returns them.
func (m *model) setAside(tenant string, rows []int64, reason string) []int64 {
	aside := []int64{}
	for _, row := range rows {
		r := m.find(tenant, row)
		if r == nil {
			continue
		}
		if _, ok := m.candidate(r); !ok {
			continue
		}
		if r.state == outbox.InClaim {
			r.old, r.token, r.expires = append(r.old, r.token), outbox.Token{}, time.Time{}
		}
		r.state, r.quarantined, r.reason = outbox.Quarantined, m.now, reason
		aside = append(aside, row)
	}
	return aside
}

func (m *model) prune(tenant string, p outbox.PruneRequest) outbox.Pruned {
	var done outbox.Pruned
	for _, row := range m.visible(tenant) {
		switch r := m.rows[row]; {
		case r.state == outbox.Delivered && p.Delivered > 0 && r.delivered.Before(m.now.Add(-p.Delivered)):
			done.Delivered++
		case r.state == outbox.Quarantined && p.Quarantined > 0 && r.quarantined.Before(m.now.Add(-p.Quarantined)):
			done.Quarantined++
		default:
			continue
		}
		if !p.DryRun {
			delete(m.rows, row)
		}
	}
	return done
}

// sameOutcome compares errors of settlements and operator actions.
func sameOutcome(got, want error) bool {
	var a, b *outbox.TransitionError
	if errors.As(want, &b) {
		return errors.As(got, &a) && *a == *b
	}
	return errors.Is(got, want)
}

func variantSubject(variant int) string { return fmt.Sprint("variant ", variant) }
