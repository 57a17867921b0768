-- Hold on for longer: the lease ends `lease_for` from now. Refused once it has run out, because somebody else may already
-- believe it is theirs. Found and fenced as in `ack`; HOT. A row that another transaction has locked is passed by and
-- named last: whatever that transaction does, no consumer can lease the row before it ends.
with q as materialized (
    select id, journal, lease_for from tarry.queue where name = %(queue)s and deleted_at is null
), held as materialized (
    select h.key, h.token, found.ctid as place
    from unnest(%(keys)s::text[], %(tokens)s::uuid[]) as h(key, token)
    cross join lateral (
        select m.ctid from tarry.message m
        where m.key = h.key and m.queue = (select id from q) and m.token = h.token
        for no key update skip locked) found
), touched as (
    update tarry.message m
    set lease_until = coalesce(%(now)s::timestamptz, clock_timestamp())
        + coalesce(%(lease_for)s::interval, m.lease_for, (select lease_for from q))
    from held h
    where m.ctid = h.place and m.token = h.token
      and m.lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    returning m.key, m.token, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.lease_until, m.consumer
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select 'touched', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, h.key, h.version, h.attempt, h.priority,
        h.due_at, h.leased_at, h.lease_until, h.consumer
    from q cross join touched h
    where q.journal <> 'off'
)
select count(d.key)::int, case when count(d.key) < cardinality(%(keys)s::text[]) then array_agg(d.key) end,
    case when (select count(*) from held) < cardinality(%(keys)s::text[]) then array(
        select h.key
        from unnest(%(keys)s::text[], %(tokens)s::uuid[]) as h(key, token)
        cross join lateral (
            select 1 from tarry.message m
            where m.key = h.key and m.queue = (select id from q) and m.token = h.token offset 0) found
        where h.key <> all (array(select key from held))) end
from q left join touched d on true
group by q.id
