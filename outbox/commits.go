package outbox

import (
	"context"
	"errors"
	"time"
)

// Commits is a read connection that notices other connections' commits, those
// of this process too.
type Commits struct{ probe *pinned }

// Commits opens a dedicated read connection. Close it.
func (s *Store) Commits(ctx context.Context) (*Commits, error) {
	c := &Commits{pin(s.reader)}
	if _, err := c.Version(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

const dataVersionSQL = `PRAGMA data_version`

// Version changes whenever another connection has committed (PRAGMA
// data_version). It takes no lock that a writer could notice. After an error the
// next call opens a new connection, whose count has nothing to do with the last
// one's.
func (c *Commits) Version(ctx context.Context) (int64, error) {
	var version int64
	err := c.probe.look(ctx, "data version", func(t *txn) error {
		return t.queryRow(ctx, dataVersionSQL).Scan(&version)
	})
	return version, err
}

// Close releases the connection.
func (c *Commits) Close() error { return c.probe.close() }

// Due says what a claim would find.
type Due struct {
	Now   time.Time // the database's clock
	Ready bool      // something is claimable now
	Next  time.Time // else the earliest due or expiry time; zero: none
}

// Due looks from a read connection, taking no writer lock. A due time that is in
// no right form counts as none, unless it makes the row claimable.
func (h *Handle) Due(ctx context.Context) (Due, error) {
	var d Due
	err := h.store.probe.look(ctx, "due", func(t *txn) error {
		d = Due{}
		if err := t.readClock(ctx, h.store.options.Now); err != nil {
			return err
		}
		d.Now = t.at
		return h.due(ctx, t, &d)
	})
	if err != nil {
		return Due{}, err
	}
	return d, nil
}

func (h *Handle) due(ctx context.Context, t *txn, d *Due) error {
	ix, err := h.store.indexes(ctx, t)
	if err != nil {
		return err
	}
	tenants, err := h.selected(ctx, t, ix)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		var args []any
		if tenant != "" {
			args = []any{tenant}
		}
		var heads [2]any
		if err := t.queryRow(ctx, ix.due(h.tenant), args...).Scan(&heads[0], &heads[1]); err != nil {
			return err
		}
		d.consider(t.now, heads[0])
		d.consider(t.now, heads[1])
	}
	if d.Ready {
		d.Next = time.Time{}
	}
	return nil
}

// consider takes the head of an arm into account.
func (d *Due) consider(now string, head any) {
	stamp, ok := head.(string)
	if !ok {
		return
	}
	if stamp <= now {
		d.Ready = true
		return
	}
	if at, ok := parseTime(stamp); ok && (d.Next.IsZero() || at.Before(d.Next)) {
		d.Next = at
	}
}

// look runs fn on the pinned read connection, outside of a transaction.
func (p *pinned) look(ctx context.Context, op string, fn func(*txn) error) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.release()
	err := p.connect(ctx)
	if err == nil {
		err = fn(&txn{op: op, conn: p.conn, stmts: p})
	}
	if err != nil {
		p.drop()
	}
	return readError(op, err)
}
