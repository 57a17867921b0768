-- Revoke an API key. A key that is revoked already does not change.
update tarry.api_key
set revoked_at = coalesce(revoked_at, %(now)s::timestamptz, clock_timestamp())
where id = %(id)s
returning
    -- include: security/_key
