-- The indexes that claims read. Partial: a delivered row costs them nothing.
CREATE INDEX IF NOT EXISTS dovecote_deliveries_due
    ON dovecote_deliveries (available_at, event_row_id) WHERE state = 'pending';

CREATE INDEX IF NOT EXISTS dovecote_deliveries_tenant_due
    ON dovecote_deliveries (tenant_id, available_at, event_row_id) WHERE state = 'pending';

CREATE INDEX IF NOT EXISTS dovecote_deliveries_expiry
    ON dovecote_deliveries (claim_expires_at, event_row_id) WHERE state = 'claimed';
