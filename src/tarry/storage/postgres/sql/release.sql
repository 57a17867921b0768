-- Give back unstarted: ready again, or due later if the caller says when, and the attempt does not count. Found and fenced
-- as in `ack`; HOT where due_at stays what it was.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), held as materialized (
    select h.key, h.token, found.ctid as place
    from unnest(%(keys)s::text[], %(tokens)s::uuid[]) as h(key, token)
    cross join lateral (
        select m.ctid from tarry.message m
        where m.key = h.key and m.queue = (select id from q) and m.token = h.token offset 0) found
), freed as (
    update tarry.message m
    set attempt = greatest(m.attempt - 1, 0), token = null, lease_until = '-infinity',
        due_at = coalesce(%(due_at)s::timestamptz,
            coalesce(%(now)s::timestamptz, clock_timestamp()) + %(delay)s::interval, m.due_at)
    from held h
    where m.ctid = h.place and m.token = h.token
    returning m.key, h.token, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.consumer, m.type
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, consumer)
    select 'released', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, f.key, f.version, f.attempt, f.priority,
        f.due_at, f.leased_at, f.consumer
    from q cross join freed f
    where q.journal <> 'off'
)
select count(d.key)::int, case when count(d.key) < cardinality(%(keys)s::text[]) then array_agg(d.key) end,
    (select count(pg_notify('tarry', %(queue)s::text || '/' || w.type)) from tarry.waiter w
    where w.queue = q.id and w.wakes_at + interval '1s' > coalesce(%(now)s::timestamptz, statement_timestamp())
      and exists (select from freed s where (s.due_at < w.wakes_at or s.due_at <= coalesce(%(now)s::timestamptz, statement_timestamp()))
        and w.type in ('', s.type)))
from q left join freed d on true
group by q.id
