-- Give up on every dead letter of a queue, and say how many there were.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), gone as (
    delete from tarry.dead_letter where queue = (select id from q)
    returning key, version, attempt, priority, due_at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at)
    select 'purged', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, g.key, g.version, g.attempt, g.priority,
        g.due_at
    from q cross join gone g
    where q.journal <> 'off'
)
select (select count(*) from gone) from q
