package outbox

import (
	"context"
	"testing"
)

// Names are the producers' choice: what a count keeps is bounded all the same, and
// the busiest streams are in it.
func TestCountsOfManyStreamsAreBounded(t *testing.T) {
	s := open(t, Options{})
	execWriter(t, s, `INSERT INTO dovecote_events (tenant_id, stream, specversion, event_id, source, event_type)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10100)
		SELECT 'acme', CASE WHEN i > 10050 THEN 'zz-busy' ELSE 's' || i END, '1.0', 'e' || i, '/s', 't' FROM n`)
	execWriter(t, s, `INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state)
		SELECT row_id, tenant_id, 'pending' FROM dovecote_events`)
	st, err := s.AllTenants().Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Streams) != 10_000 || st.Pending != 10_100 {
		t.Errorf("%d streams of %d pending rows", len(st.Streams), st.Pending)
	}
	if last := st.Streams[len(st.Streams)-1]; last.Stream != "zz-busy" || last.Pending != 50 {
		t.Errorf("the busiest stream is %+v", last)
	}
}
