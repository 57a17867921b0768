-- Finish messages: the row goes, the event comes, in one transaction. Key and token are both in the condition, so a
-- stale token removes nothing. Rows arrive sorted by key (lock order) and are found one by one along message_key, then
-- by ctid: the only plan there is, whether the table was empty or full when it was made. What was not settled was
-- not held, or was touched at this very moment. Says how many, and which only if it was not all of them.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), held as materialized (
    select h.key, h.token, found.ctid as place
    from unnest(%(keys)s::text[], %(tokens)s::uuid[]) as h(key, token)
    cross join lateral (
        select m.ctid from tarry.message m
        where m.key = h.key and m.queue = (select id from q) and m.token = h.token offset 0) found
), done as (
    delete from tarry.message m
    using held h
    where m.ctid = h.place and m.token = h.token
    returning m.key, m.token, m.version, m.attempt, m.priority, m.due_at, m.leased_at, m.lease_until, m.consumer
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer)
    select 'acked', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, d.key, d.version, d.attempt, d.priority,
        d.due_at, d.leased_at, d.lease_until, d.consumer
    from q cross join done d
    where q.journal <> 'off'
)
select count(d.key)::int, case when count(d.key) < cardinality(%(keys)s::text[]) then array_agg(d.key) end
from q left join done d on true
group by q.id
