-- `offer` for keys that were generated just now: nothing can be in their way, so nothing is looked for. The index still
-- refuses a key that is there after all. Saves a probe, and 48 bytes of WAL, per message.
with q as materialized (
    select id, journal, coalesce(%(now)s::timestamptz, statement_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null
), stored as (
    insert into tarry.message (queue, key, payload, content_type, due_at, planned_at, created_at, priority, conflict)
    select q.id, d.key, d.payload, d.content_type, t.due_at, t.due_at, q.now, d.priority, 0
    from q
    cross join unnest(%(keys)s::text[], %(payloads)s::bytea[], %(due_ats)s::timestamptz[], %(delays)s::float8[],
        %(priorities)s::smallint[], %(content_types)s::text[])
        as d(key, payload, due_at, delay, priority, content_type)
    cross join lateral (select coalesce(d.due_at, q.now + make_interval(secs => d.delay)) as due_at) t
    returning key, payload, version, priority, due_at, content_type
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, payload, detail)
    select 'offered', q.now, q.id, s.key, s.version, 0, s.priority,
        s.due_at, octet_length(s.payload), substr(sha256(s.payload), 1, 8),
        case q.journal when 'payloads' then s.payload end,
        case q.journal when 'payloads' then tarry.told(null, s.content_type, null) end
    from q cross join stored s
    where q.journal <> 'off'
)
select count(s.key)::int,
    (select count(pg_notify('tarry', %(queue)s::text || '/' || w.type)) from tarry.waiter w
    where w.queue = q.id and w.type = '' and w.wakes_at > case when min(s.due_at) <= q.now then q.now - interval '1s'
      else min(s.due_at) end)
from q left join stored s on true
group by q.id, q.now
