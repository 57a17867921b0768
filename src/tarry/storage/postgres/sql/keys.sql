-- API keys: those of these ids, or all of them, the oldest first. Whether a key is active is for the database's clock to say.
select id, name, actions, queues, secret_hash, created_at, expires_at, revoked_at,
    revoked_at is null and (expires_at is null or expires_at > coalesce(%(now)s::timestamptz, clock_timestamp()))
from tarry.api_key
where %(ids)s::text[] is null or id = any(%(ids)s::text[])
order by created_at, id
