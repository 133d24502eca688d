-- The outbox, schema version 2.
--
-- Timestamps are text, UTC, YYYY-MM-DDTHH:MM:SS.ffffffZ. SQLite's clock has
-- milliseconds, so a default ends in three zeros. Text order is time order.
-- Lengths are bytes of UTF-8, hence the casts.

-- One row. It says which writers may use this file.
CREATE TABLE dovecote_schema (
    schema_version      INTEGER PRIMARY KEY CHECK (schema_version = 2),
    minimum_crate_major INTEGER NOT NULL CHECK (minimum_crate_major >= 0),
    minimum_crate_minor INTEGER NOT NULL CHECK (minimum_crate_minor >= 0),
    minimum_crate_patch INTEGER NOT NULL CHECK (minimum_crate_patch >= 0),
    rolling_compatible  INTEGER NOT NULL
);

INSERT INTO dovecote_schema
    (schema_version, minimum_crate_major, minimum_crate_minor, minimum_crate_patch, rolling_compatible)
VALUES (2, 0, 2, 0, 0);

-- What happened. Rows are inserted and pruned, never updated. AUTOINCREMENT
-- keeps a row id from ever being handed out twice.
CREATE TABLE dovecote_events (
    row_id          INTEGER PRIMARY KEY AUTOINCREMENT CHECK (row_id > 0),
    tenant_id       TEXT NOT NULL CHECK (length(CAST(tenant_id AS BLOB)) BETWEEN 1 AND 255),
    stream          TEXT NOT NULL CHECK (length(CAST(stream AS BLOB)) <= 255),
    specversion     TEXT NOT NULL CHECK (specversion = '1.0'),
    event_id        TEXT NOT NULL CHECK (length(CAST(event_id AS BLOB)) <= 1024),
    source          TEXT NOT NULL CHECK (length(CAST(source AS BLOB)) <= 2048),
    event_type      TEXT NOT NULL CHECK (length(CAST(event_type AS BLOB)) <= 1024),
    subject         TEXT CHECK (length(CAST(subject AS BLOB)) <= 2048),
    occurred_at     TEXT,
    datacontenttype TEXT CHECK (length(CAST(datacontenttype AS BLOB)) <= 255),
    dataschema      TEXT CHECK (length(CAST(dataschema AS BLOB)) <= 2048),
    partitionkey    TEXT CHECK (length(CAST(partitionkey AS BLOB)) <= 255),
    extensions      TEXT NOT NULL DEFAULT '{}',
    data_kind       TEXT CHECK (data_kind IN ('json', 'binary')),
    data            BLOB,
    enqueued_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),

    UNIQUE (tenant_id, row_id),
    CHECK (length(CAST(source AS BLOB)) + length(CAST(event_id AS BLOB)) <= 2048),
    CHECK ((data IS NULL) = (data_kind IS NULL)),
    CHECK (datacontenttype IS NOT NULL OR data IS NULL OR length(data) = 0)
);

-- An event's identity: enqueuing it again finds the row that is there.
CREATE UNIQUE INDEX dovecote_events_identity ON dovecote_events
    (tenant_id COLLATE BINARY, source COLLATE BINARY, event_id COLLATE BINARY);

-- Where each event is on its way out: one row per event, inserted with it.
CREATE TABLE dovecote_deliveries (
    event_row_id        INTEGER PRIMARY KEY,
    tenant_id           TEXT NOT NULL CHECK (length(CAST(tenant_id AS BLOB)) BETWEEN 1 AND 255),
    -- Not IN: SQLite would build a temporary index for every row that is written.
    state               TEXT NOT NULL CHECK (state = 'pending' OR state = 'claimed' OR state = 'delivered' OR state = 'quarantined'),
    available_at        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    attempts            INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    claim_token         BLOB CHECK (length(claim_token) = 16),
    claimed_by          TEXT CHECK (length(CAST(claimed_by AS BLOB)) <= 255),
    claim_expires_at    TEXT,
    last_failure_code   TEXT CHECK (length(CAST(last_failure_code AS BLOB)) <= 128),
    last_failure_detail TEXT CHECK (length(CAST(last_failure_detail AS BLOB)) <= 2048),
    delivered_at        TEXT,
    quarantined_at      TEXT,
    quarantine_reason   TEXT CHECK (length(CAST(quarantine_reason AS BLOB)) <= 2048),

    FOREIGN KEY (tenant_id, event_row_id)
        REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT,
    CHECK ((last_failure_code IS NULL) = (last_failure_detail IS NULL)),
    -- A claim is held in the claimed state and in no other; each final state
    -- has its own columns, and nothing else has them.
    CHECK ((claim_token IS NOT NULL) = (state = 'claimed')),
    CHECK ((claimed_by IS NOT NULL) = (state = 'claimed')),
    CHECK ((claim_expires_at IS NOT NULL) = (state = 'claimed')),
    CHECK ((delivered_at IS NOT NULL) = (state = 'delivered')),
    CHECK ((quarantined_at IS NOT NULL) = (state = 'quarantined')),
    CHECK ((quarantine_reason IS NOT NULL) = (state = 'quarantined'))
);
