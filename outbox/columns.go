package outbox

// eventInsertColumns are the columns of dovecote_events that an enqueue
// sets, in the order of Event.appendColumns. row_id and enqueued_at come from
// the database, or are added by whoever imports.
const eventInsertColumns = `tenant_id, stream, specversion, event_id, source, event_type,
	subject, occurred_at, datacontenttype, dataschema, partitionkey,
	extensions, data_kind, data`

// eventInsertCount is the number of eventInsertColumns.
const eventInsertCount = 14

const specVersion = "1.0"

// appendColumns appends the stored values of e to args, in the order of
// eventInsertColumns: string, []byte for data, nil for NULL. e must be
// valid.
func (e *Event) appendColumns(args []any) []any {
	panic("todo")
}

// sameContent reports whether the stored columns hold the content of e, every
// caller-controlled field and byte, tenant and identity included. It works with what any SQLite driver
// scans, as long as the row has not been left.
func (e *Event) sameContent(c *eventColumns) bool { panic("todo") }
