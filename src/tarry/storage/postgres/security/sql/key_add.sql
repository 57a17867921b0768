-- Add an API key. Its id is random: no row if it is taken, and the caller retries with another. The key expires no later than
-- the key that creates it. The bound is compared here: one that the client computes would move with every key.
insert into tarry.api_key (id, name, secret_hash, actions, queues, created_at, expires_at)
select %(id)s, %(name)s, %(secret_hash)s, %(actions)s::text[], %(queues)s::text[], t.now,
    least(t.now + make_interval(secs => %(expires_for)s::float8), %(expires_by)s::timestamptz)
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
on conflict (id) do nothing
returning
    -- include: security/_key
