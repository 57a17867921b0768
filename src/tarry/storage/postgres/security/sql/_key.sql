-- The columns of `ApiKey`. The database's clock decides whether the key is active.
id, name, actions, queues, secret_hash, created_at, expires_at, revoked_at,
revoked_at is null and (expires_at is null or expires_at > coalesce(%(now)s::timestamptz, clock_timestamp())) as active
