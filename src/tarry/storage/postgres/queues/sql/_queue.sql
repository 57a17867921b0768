-- The columns of `QueueInfo`.
name, lease_for, max_attempts, retry, journal::text, retention_for, target_lag_for, max_depth, description, handler_max_attempts,
created_at,
updated_at, paused_at, paused_reason
