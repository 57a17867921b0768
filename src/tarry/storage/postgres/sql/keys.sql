-- One API key, or all of them, the oldest first. Whether a key is active is for the database's clock to say.
select id, name, actions, queues, secret_hash, created_at, expires_at, revoked_at,
    revoked_at is null and (expires_at is null or expires_at > coalesce(%(now)s::timestamptz, clock_timestamp()))
from tarry.api_key
where %(id)s::text is null or id = %(id)s
order by created_at, id
