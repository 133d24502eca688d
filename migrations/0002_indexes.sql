-- The first three are what claims read. All are partial: a delivered row costs them nothing.
CREATE INDEX IF NOT EXISTS dovecote_deliveries_due
    ON dovecote_deliveries (available_at, event_row_id) WHERE state = 'pending';

CREATE INDEX IF NOT EXISTS dovecote_deliveries_tenant_due
    ON dovecote_deliveries (tenant_id, available_at, event_row_id) WHERE state = 'pending';

CREATE INDEX IF NOT EXISTS dovecote_deliveries_expiry
    ON dovecote_deliveries (claim_expires_at, event_row_id) WHERE state = 'claimed';

-- What operators look for: counting and listing the quarantined rows, and
-- pruning them, goes through them alone.
CREATE INDEX IF NOT EXISTS dovecote_deliveries_quarantined
    ON dovecote_deliveries (event_row_id) WHERE state = 'quarantined';
