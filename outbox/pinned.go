package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// pinned is one connection with its prepared statements, for whoever holds it.
type pinned struct {
	pool  *sql.DB
	slot  chan struct{} // capacity 1: full while somebody holds it
	conn  *sql.Conn     // nil: to be opened
	stmts map[string]*sql.Stmt
	plans plans
}

func pin(c driver.Connector) *pinned {
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(1)
	return &pinned{pool: pool, slot: make(chan struct{}, 1)}
}

func (p *pinned) acquire(ctx context.Context) error {
	select {
	case p.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pinned) release() { <-p.slot }

// connect makes sure that the connection stands.
func (p *pinned) connect(ctx context.Context) error {
	if p.conn != nil {
		return nil
	}
	conn, err := p.pool.Conn(ctx)
	if err != nil {
		return err
	}
	p.conn, p.stmts, p.plans = conn, make(map[string]*sql.Stmt), plans{}
	return nil
}

// exec runs a short statement to its end, whatever becomes of ctx.
func (p *pinned) exec(ctx context.Context, query string) error {
	s, err := p.stmt(ctx, query)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(context.WithoutCancel(ctx))
	return err
}

// maxStmts bounds the statements kept; the library's own are fewer.
const maxStmts = 256

// stmt prepares query, or finds it prepared.
func (p *pinned) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := p.stmts[query]; ok {
		return s, nil
	}
	if len(p.stmts) >= maxStmts {
		p.closeStmts()
	}
	s, err := p.conn.PrepareContext(context.WithoutCancel(ctx), query)
	if err != nil {
		return nil, err
	}
	p.stmts[query] = s
	return s, nil
}

func (p *pinned) closeStmts() {
	for q, s := range p.stmts {
		s.Close()
		delete(p.stmts, q)
	}
}

// drop closes the connection; the next use opens another one.
func (p *pinned) drop() {
	if p.conn == nil {
		return
	}
	p.closeStmts()
	discard(p.conn)
	p.conn = nil
}

// discard closes conn instead of giving it back to its pool.
func discard(conn *sql.Conn) {
	// The error is the one that makes the pool close it.
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// close waits for whoever holds the connection.
func (p *pinned) close() error {
	p.slot <- struct{}{}
	defer p.release()
	if p.conn != nil {
		p.closeStmts()
		p.conn.Close()
		p.conn = nil
	}
	return p.pool.Close()
}
