-- Release messages that were not started: ready again, or due at the given time, and the attempt does not count. Found and
-- fenced as in `ack_by_key`. HOT if due_at does not change: a released row is as small as a new one, so a page of leased rows has
-- room for all of them.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
),
-- include: messages/_held
, moved as (
    update tarry.message m
    set attempt = greatest(m.attempt - 1, 0), token = null, lease_until = '-infinity', leased_at = null, consumer = null,
        due_at = coalesce(%(due_at)s::timestamptz,
            coalesce(%(now)s::timestamptz, clock_timestamp()) + %(after)s::interval, m.due_at)
    from held h
    where m.ctid = h.tid and m.token = h.token
    returning m.key, m.version, m.attempt, m.priority, m.due_at, h.leased_at, h.consumer, m.type
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, consumer)
    select 'released', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, f.key, f.version, f.attempt, f.priority,
        f.due_at, f.leased_at, f.consumer
    from q cross join moved f
    where q.journal <> 'off'
)
select
    -- include: messages/_settled
    ,
    -- include: wakeup/_notify
from q left join moved d on true
group by q.id
