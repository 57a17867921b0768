-- A new API key. Its id is random: one that is taken is a row that does not come back, and the caller draws again. It ends
-- with the key that makes it at the latest; compared here, as a bound that the client computes would grow with every key.
insert into tarry.api_key (id, name, secret_hash, actions, queues, created_at, expires_at)
select %(id)s, %(name)s, %(secret_hash)s, %(actions)s::text[], %(queues)s::text[], t.now,
    least(t.now + make_interval(secs => %(expires_for)s::float8), %(expires_by)s::timestamptz)
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
on conflict (id) do nothing
returning id, name, actions, queues, secret_hash, created_at, expires_at, revoked_at,
    revoked_at is null and (expires_at is null or expires_at > coalesce(%(now)s::timestamptz, clock_timestamp()))
