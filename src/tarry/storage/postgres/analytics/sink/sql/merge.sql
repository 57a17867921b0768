-- Offer the staged rows of some attempts: `offer` in bulk, with the same conflict rules and events. In the order of
-- (key, queue), like every writer of many rows; keys first, since sorting compares the first eight bytes of the first column.
-- Of rows with the same key one is chosen: the last for replace and debounce, the first for keep, the earliest for earliest.
-- One statement, so a concurrent writer causes a conflict row, not an error.
with folded as (
    select r.queue, r.key, r.payload, r.content_type, r.priority, r.type, r.headers, r.max_attempts,
        q.id as queue_id, t.due_at,
        (%(offsets)s::bigint[])[r.part + 1] + r.seq + 1 as n,
        row_number() over same = 1 as first, lead(true) over same is null as last
    from tarry.sink_row r
    join unnest(%(queues)s::text[], %(queue_ids)s::int[]) as q(name, id) on q.name = r.queue
    cross join lateral coalesce(r.due_at, %(now)s::timestamptz + make_interval(secs => r.after_s)) as t(due_at)
    where r.attempt = any (%(attempts)s::bigint[])
    window same as (
        partition by r.key, q.id
        order by case when %(conflict)s::smallint = 2 then t.due_at end, r.part, r.seq)
), chosen as materialized (
    select * from folded where case when %(conflict)s::smallint in (0, 3) then last else first end
    order by key, queue_id
), stored as (
    insert into tarry.message as m (version, queue, key, payload, content_type, due_at, planned_at, created_at, priority,
        conflict, type, headers, max_attempts, due_limit)
    select (%(bases)s::bigint[])[width_bucket(c.n, %(starts)s::bigint[])] + c.n, c.queue_id, c.key, c.payload,
        c.content_type, least(c.due_at, d.due_limit), least(c.due_at, d.due_limit), %(now)s, c.priority,
        %(conflict)s::smallint, c.type, c.headers, c.max_attempts, d.due_limit
    from chosen c
    cross join (select %(now)s + make_interval(secs => %(max_wait)s::float8) as due_limit) d
    -- include: messages/_conflict
    returning m.queue, m.key, m.version, m.priority, m.due_at, m.type, m.xmax = 0 as created, octet_length(m.payload) as size,
        substr(sha256(m.payload), 1, 8) as payload_hash,
        case when m.queue = any (%(payloads)s::int[]) then m.payload end as payload,
        m.content_type, m.headers
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash, payload, detail)
    select case when created then 'offered'::tarry.event_kind else 'updated' end, %(now)s, queue, key, version,
        0, priority, due_at, size, payload_hash, payload,
        tarry.detail(payload is not null, type, content_type, headers)
    from stored
    where queue <> all (%(off)s::int[])
), woken as (
    select pg_notify('tarry', q.name || '/' || w.type)
    from (
        select queue, type, max(wakes_at) as wakes_at from tarry.waiter
        where queue = any (%(queue_ids)s::int[]) and wakes_at + interval '1s' > %(now)s
        group by queue, type
    ) w
    join unnest(%(queues)s::text[], %(queue_ids)s::int[]) as q(name, id) on q.id = w.queue
    where exists (select from stored s
        where s.queue = w.queue and (s.due_at < w.wakes_at or s.due_at <= %(now)s)
          and w.type in ('', s.type))
)
select (select count(*) from chosen) as chosen, count(*) filter (where created) as created,
    count(*) filter (where not created) as updated, (select count(*) from woken)
from stored
