-- Revoke an API key. A revoked key stays as it was.
update tarry.api_key
set revoked_at = coalesce(revoked_at, %(now)s::timestamptz, clock_timestamp())
where id = %(id)s
returning
    -- include: security/_key
