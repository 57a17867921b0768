-- Remove one live message, leased or not; with `unless_leased` only if it is not leased, with a version only if it still
-- has that one. Relies on message_key.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), dropped as (
    delete from tarry.message m
    where m.key = %(key)s and m.queue = (select id from q)
      and (%(version)s::bigint is null or m.version = %(version)s)
      and (not %(unless_leased)s::boolean or m.lease_until <= coalesce(%(now)s::timestamptz, clock_timestamp()))
    returning m.key, m.version, m.attempt, m.priority, m.due_at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at)
    select 'dropped', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, d.key, d.version, d.attempt, d.priority,
        d.due_at
    from q cross join dropped d
    where q.journal <> 'off'
)
select d.key from q left join dropped d on true
