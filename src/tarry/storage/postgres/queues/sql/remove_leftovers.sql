-- Remove a batch of messages and dead letters of a queue that was deleted by force, or of any such queue, and return their
-- number. Each is journaled. No offer, poll or settle finds the deleted queue; concurrent processes lock different batches. A
-- result of 0 means that nothing is left.
with q as materialized (
    select id, journal from tarry.queue
    where has_leftovers and id = coalesce(%(queue)s::int, id)
    order by id limit 1
), dropped as (
    delete from tarry.message m
    where m.ctid = any (array(
        select c.ctid from tarry.message c
        where (c.queue + 0) = (select id from q)
        limit %(limit)s::int for update skip locked))
    returning m.key, m.version, m.attempt, m.priority, m.due_at
), discarded as (
    delete from tarry.dead_letter d
    where d.ctid = any (array(
        select c.ctid from tarry.dead_letter c
        where c.queue = (select id from q)
        limit %(limit)s::int for update skip locked))
    returning d.key, d.version, d.attempt, d.priority, d.due_at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at)
    select g.kind, coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, g.key, g.version, g.attempt, g.priority, g.due_at
    from q cross join (
        select 'dropped'::tarry.event_kind as kind, dropped.* from dropped
        union all
        select 'discarded'::tarry.event_kind, discarded.* from discarded) g
    where q.journal <> 'off'
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_purged', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, jsonb_build_object('count', d.n)
    from q cross join (select count(*) as n from dropped) d
    where d.n > 0
), ended as (
    update tarry.queue t set has_leftovers = false
    from q
    where t.id = q.id
      and not exists (select from tarry.message m where (m.queue + 0) = q.id)
      and not exists (select from tarry.dead_letter d where d.queue = q.id)
)
select ((select count(*) from dropped) + (select count(*) from discarded))::int as removed
