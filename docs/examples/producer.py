"""Writes events into the outbox from Python, with the standard library alone:
an order and its event commit together, or neither does.

    python3 producer.py shop.db order-17 4200
"""

import base64
import json
import sqlite3
import sys
from datetime import datetime, timezone


class IdempotencyConflict(Exception):
    """An event of this tenant, source and id is there, with other content."""


def open_database(path):
    # mode=rw creates no file, so that a mistyped path is an error. Transactions
    # begin where the code says BEGIN, and only there.
    db = sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=5, isolation_level=None)
    db.execute("PRAGMA foreign_keys = ON")
    return db


def timestamp(t):
    """The stored form of an aware datetime."""
    return t.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def extensions(values):
    """The stored form of {name: (type, value)}: names sorted, nothing but what JSON
    needs, characters as they are. A binary value is given as bytes."""
    tagged = {
        name: {"type": kind, "value": base64.b64encode(value).decode() if kind == "binary" else value}
        for name, (kind, value) in values.items()
    }
    return json.dumps(tagged, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


COLUMNS = (
    "tenant_id", "stream", "specversion", "event_id", "source", "event_type", "subject", "occurred_at",
    "datacontenttype", "dataschema", "partitionkey", "extensions", "data_kind", "data",
)

INSERT_EVENT = """
INSERT INTO dovecote_events (%s) VALUES (%s)
ON CONFLICT (tenant_id, source, event_id) DO NOTHING
""" % (", ".join(COLUMNS), ", ".join(":" + c for c in COLUMNS))

INSERT_DELIVERY = """
INSERT INTO dovecote_deliveries (event_row_id, tenant_id, state, available_at)
SELECT row_id, tenant_id, 'pending', enqueued_at FROM dovecote_events WHERE row_id = ?
"""

# IS takes two NULLs for equal.
COMPARE = """
SELECT row_id, %s FROM dovecote_events
WHERE tenant_id = :tenant_id AND source = :source AND event_id = :event_id
""" % " AND ".join(f"{c} IS :{c}" for c in COLUMNS)


def enqueue(db, **event):
    """Writes an event in the caller's transaction. Returns its row, and whether it
    is new: the same event again does nothing."""
    row = dict.fromkeys(COLUMNS) | {"specversion": "1.0", "extensions": "{}"} | event
    inserted = db.execute(INSERT_EVENT, row)
    if inserted.rowcount == 1:
        number = inserted.lastrowid
        db.execute(INSERT_DELIVERY, (number,))
        return number, True
    number, same = db.execute(COMPARE, row).fetchone()
    if not same:
        raise IdempotencyConflict(f"row {number} has this tenant, source and id, and other content")
    return number, False


def place_order(db, order, cents, placed_at):
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT INTO orders (id, cents) VALUES (?, ?)", (order, cents))
        enqueue(
            db,
            tenant_id="acme",
            stream="orders",
            event_id=order,
            source="/shop",
            event_type="com.example.order.placed",
            occurred_at=timestamp(placed_at),  # the same if this is tried again
            datacontenttype="application/json",
            extensions=extensions({"channel": ("string", "web"), "priority": ("integer", 3)}),
            data_kind="json",
            data=json.dumps({"order": order, "cents": cents}).encode(),  # bytes: a BLOB
        )
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


if __name__ == "__main__":
    place_order(open_database(sys.argv[1]), sys.argv[2], int(sys.argv[3]), datetime.now(timezone.utc))
