-- An outbox of schema version 2 as the Rust library of that schema sets it up,
-- in meaning: a state table in one CHECK, indexes that lead with the tenant, a
-- doubled key on (tenant_id, row_id), none of the relay's own indexes.
CREATE TABLE dovecote_schema (
    schema_version INTEGER PRIMARY KEY CHECK (schema_version = 2),
    minimum_crate_major INTEGER NOT NULL CHECK (minimum_crate_major >= 0),
    minimum_crate_minor INTEGER NOT NULL CHECK (minimum_crate_minor >= 0),
    minimum_crate_patch INTEGER NOT NULL CHECK (minimum_crate_patch >= 0),
    rolling_compatible INTEGER NOT NULL
);
INSERT INTO dovecote_schema VALUES (2, 0, 2, 0, 0);

CREATE TABLE dovecote_events (
    row_id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    specversion TEXT NOT NULL,
    event_id TEXT NOT NULL,
    source TEXT NOT NULL,
    event_type TEXT NOT NULL,
    subject TEXT,
    occurred_at TEXT,
    datacontenttype TEXT,
    dataschema TEXT,
    partitionkey TEXT,
    extensions TEXT NOT NULL DEFAULT '{}',
    data_kind TEXT,
    data BLOB,
    enqueued_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    UNIQUE (tenant_id, row_id),
    CHECK (row_id > 0),
    CHECK (specversion = '1.0'),
    CHECK (length(CAST(tenant_id AS BLOB)) > 0),
    CHECK (length(CAST(tenant_id AS BLOB)) <= 255),
    CHECK (length(CAST(stream AS BLOB)) <= 255),
    CHECK (length(CAST(event_id AS BLOB)) <= 1024),
    CHECK (length(CAST(source AS BLOB)) <= 2048),
    CHECK (length(CAST(source AS BLOB)) + length(CAST(event_id AS BLOB)) <= 2048),
    CHECK (length(CAST(event_type AS BLOB)) <= 1024),
    CHECK (subject IS NULL OR length(CAST(subject AS BLOB)) <= 2048),
    CHECK (datacontenttype IS NULL OR length(CAST(datacontenttype AS BLOB)) <= 255),
    CHECK (dataschema IS NULL OR length(CAST(dataschema AS BLOB)) <= 2048),
    CHECK (partitionkey IS NULL OR length(CAST(partitionkey AS BLOB)) <= 255),
    CHECK (data_kind IS NULL OR data_kind IN ('json', 'binary')),
    CHECK ((data IS NULL) = (data_kind IS NULL)),
    CHECK (length(data) = 0 OR data IS NULL OR datacontenttype IS NOT NULL)
);
CREATE UNIQUE INDEX dovecote_events_tenant_source_event_id
    ON dovecote_events (tenant_id COLLATE BINARY, source COLLATE BINARY, event_id COLLATE BINARY);
CREATE INDEX dovecote_events_tenant_row ON dovecote_events (tenant_id COLLATE BINARY, row_id);

CREATE TABLE dovecote_deliveries (
    event_row_id INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    state TEXT NOT NULL,
    available_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    attempts INTEGER NOT NULL DEFAULT 0,
    claim_token BLOB,
    claimed_by TEXT,
    claim_expires_at TEXT,
    last_failure_code TEXT,
    last_failure_detail TEXT,
    delivered_at TEXT,
    quarantined_at TEXT,
    quarantine_reason TEXT,
    CHECK (length(CAST(tenant_id AS BLOB)) > 0 AND length(CAST(tenant_id AS BLOB)) <= 255),
    CHECK (attempts >= 0),
    CHECK (claim_token IS NULL OR length(claim_token) = 16),
    CHECK (claimed_by IS NULL OR length(CAST(claimed_by AS BLOB)) <= 255),
    CHECK (last_failure_code IS NULL OR length(CAST(last_failure_code AS BLOB)) <= 128),
    CHECK (last_failure_detail IS NULL OR length(CAST(last_failure_detail AS BLOB)) <= 2048),
    CHECK ((last_failure_detail IS NULL) = (last_failure_code IS NULL)),
    CHECK (quarantine_reason IS NULL OR length(CAST(quarantine_reason AS BLOB)) <= 2048),
    CHECK (CASE state
        WHEN 'pending' THEN coalesce(claim_token, claimed_by, claim_expires_at, delivered_at, quarantined_at, quarantine_reason) IS NULL
        WHEN 'claimed' THEN claim_token IS NOT NULL AND claimed_by IS NOT NULL AND claim_expires_at IS NOT NULL
            AND coalesce(delivered_at, quarantined_at, quarantine_reason) IS NULL
        WHEN 'delivered' THEN delivered_at IS NOT NULL
            AND coalesce(claim_token, claimed_by, claim_expires_at, quarantined_at, quarantine_reason) IS NULL
        WHEN 'quarantined' THEN quarantined_at IS NOT NULL AND quarantine_reason IS NOT NULL
            AND coalesce(claim_token, claimed_by, claim_expires_at, delivered_at) IS NULL
        ELSE 0 END),
    FOREIGN KEY (tenant_id, event_row_id) REFERENCES dovecote_events (tenant_id, row_id) ON DELETE RESTRICT
);
CREATE INDEX dovecote_deliveries_claimable ON dovecote_deliveries (tenant_id, state, available_at, event_row_id);
CREATE INDEX dovecote_deliveries_expired_claims ON dovecote_deliveries (tenant_id, state, claim_expires_at, event_row_id);
