"""Consumes what the relay publishes, with nats-py: decodes events of both modes
and has the effect of each once, in its own SQLite database.

    python3 consumer.py nats://127.0.0.1:4222 'shop.>' seen.db
"""

import asyncio
import base64
import json
import sqlite3
import sys
from urllib.parse import unquote  # leaves "+" alone, as the NATS binding wants


def decode(headers, body):
    """Returns (tenant, attributes, data) of a message of either mode."""
    tenant = unquote(headers.get("Outbox-Tenant", ""), errors="strict")
    if headers.get("Content-Type", "").startswith("application/cloudevents+json"):
        attributes = json.loads(body)
        if "data_base64" in attributes:
            data = base64.b64decode(attributes.pop("data_base64"))
        else:
            data = attributes.pop("data", None)
        return tenant, attributes, data
    attributes = {
        name[3:]: unquote(value, errors="strict")
        for name, value in headers.items()
        if name.startswith("ce-")
    }
    return tenant, attributes, body


def apply(db, tenant, attributes):
    """Has the event's effect, unless it was seen before. One transaction."""
    with db:
        seen = db.execute(
            "INSERT INTO seen (tenant, source, id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (tenant, attributes["source"], attributes["id"]),
        )
        if seen.rowcount == 0:
            return False
        db.execute(
            "INSERT INTO counts (type, n) VALUES (?, 1) ON CONFLICT (type) DO UPDATE SET n = n + 1",
            (attributes["type"],),
        )
    return True


def open_database(path):
    db = sqlite3.connect(path)
    db.executescript(
        """
        CREATE TABLE IF NOT EXISTS seen (
            tenant TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
            PRIMARY KEY (tenant, source, id)
        ) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS counts (type TEXT PRIMARY KEY, n INTEGER NOT NULL);
        """
    )
    return db


async def main(server, subject, path):
    import nats  # pip install nats-py

    db = open_database(path)
    connection = await nats.connect(server)
    messages = await connection.jetstream().subscribe(subject, durable="example-py", manual_ack=True)
    async for message in messages.messages:
        try:
            tenant, attributes, _data = decode(message.headers or {}, message.data)
        except ValueError as problem:
            print("unreadable:", problem, file=sys.stderr)
            await message.term()
            continue
        apply(db, tenant, attributes)
        await message.ack()  # after the commit


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
