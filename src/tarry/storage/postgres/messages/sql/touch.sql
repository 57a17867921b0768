-- Extend leases to `lease_for` from now. Refused after expiry, because another consumer may have leased the message. Found and
-- fenced as in `ack_by_key`; HOT. A row that another transaction has locked is skipped and returned as busy: no consumer can
-- lease the row before that transaction ends.
with q as materialized (
    select id, journal, lease_for from tarry.queue where name = %(queue)s and deleted_at is null
), held as materialized (
    select h.key, h.token, found.ctid as tid
    from unnest(%(keys)s::text[], %(tokens)s::bigint[]) as h(key, token)
    cross join lateral (
        select m.ctid from tarry.message m
        where m.key = h.key and m.queue = (select id from q) and m.token = h.token
        for no key update skip locked) found
), touched as (
    update tarry.message m
    set lease_until = coalesce(%(now)s::timestamptz, clock_timestamp())
        + coalesce(%(lease_for)s::interval, m.lease_for, (select lease_for from q))
    from held h
    where m.ctid = h.tid and m.token = h.token
      and m.lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    returning m.key, m.token, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.lease_until, m.consumer
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select 'touched', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, h.key, h.version, h.attempt, h.priority,
        h.due_at, h.leased_at, h.lease_until, h.consumer
    from q cross join touched h
    where q.journal <> 'off'
)
select
    -- include: messages/_settled
    ,
    case when (select count(*) from held) < cardinality(%(keys)s::text[]) then array(
        select h.key
        from unnest(%(keys)s::text[], %(tokens)s::bigint[]) as h(key, token)
        cross join lateral (
            select 1 from tarry.message m
            where m.key = h.key and m.queue = (select id from q) and m.token = h.token offset 0) found
        where h.key <> all (array(select key from held))) end as busy
from q left join touched d on true
group by q.id
