-- `offer` for generated keys: without a conflict clause, which saves an index lookup and 48 bytes of WAL per message. The unique
-- index still rejects an existing key.
with q as materialized (
    select id, journal, coalesce(%(now)s::timestamptz, statement_timestamp()) as now
    from tarry.queue where name = %(queue)s and deleted_at is null and (max_depth is null or %(fits)s::boolean)
), stored as (
    insert into tarry.message (queue, key, payload, content_type, due_at, planned_at, created_at, priority, conflict)
    select q.id, d.key, d.payload, d.content_type, t.due_at, t.due_at, q.now, d.priority, 0
    from q
    cross join unnest(%(keys)s::text[], %(payloads)s::bytea[], %(due_ats)s::timestamptz[], %(after_s)s::float8[],
        %(priorities)s::smallint[], %(content_types)s::text[])
        as d(key, payload, due_at, after_s, priority, content_type)
    cross join lateral (select coalesce(d.due_at, q.now + make_interval(secs => d.after_s), q.now) as due_at) t
    returning queue, key, payload, version, priority, due_at, type, content_type
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, payload, detail)
    select 'offered', q.now, q.id, s.key, s.version, 0, s.priority,
        s.due_at, octet_length(s.payload), substr(sha256(s.payload), 1, 8),
        case q.journal when 'payloads' then s.payload end,
        tarry.detail(q.journal = 'payloads', null, s.content_type, null)
    from q cross join stored s
    where q.journal <> 'off'
)
select
    -- include: wakeup/_notify
from stored d cross join lateral (select d.queue as id) q
having count(*) > 0 -- many
