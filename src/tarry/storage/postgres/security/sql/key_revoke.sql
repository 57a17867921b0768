-- Never again. Revoking a revoked key leaves it as it was.
update tarry.api_key
set revoked_at = coalesce(revoked_at, %(now)s::timestamptz, clock_timestamp())
where id = %(id)s
returning id, name, actions, queues, secret_hash, created_at, expires_at, revoked_at, false
