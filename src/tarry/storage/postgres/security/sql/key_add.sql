-- Add an API key. Its id is random: no row if it is taken, and the caller draws another. It expires with the key that
-- creates it at the latest; compared here, as a bound that the client computes would grow with every key.
insert into tarry.api_key (id, name, secret_hash, actions, queues, created_at, expires_at)
select %(id)s, %(name)s, %(secret_hash)s, %(actions)s::text[], %(queues)s::text[], t.now,
    least(t.now + make_interval(secs => %(expires_for)s::float8), %(expires_by)s::timestamptz)
from (select coalesce(%(now)s::timestamptz, clock_timestamp()) as now) t
on conflict (id) do nothing
returning
    -- include: security/_key
