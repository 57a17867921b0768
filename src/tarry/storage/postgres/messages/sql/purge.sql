-- Remove every live message of one queue, leased or not, and return their number. Each is journaled: a replay of the journal
-- must give the live table. In the order of message_order, so two purges cannot deadlock.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), dropped as (
    delete from tarry.message m
    where (m.queue + 0) = (select id from q)
    returning m.key, m.version, m.attempt, m.priority, m.due_at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at)
    select 'dropped', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, d.key, d.version, d.attempt, d.priority,
        d.due_at
    from q cross join dropped d
    where q.journal <> 'off'
), noted as (
    insert into tarry.event (kind, at, queue, detail)
    select 'queue_purged', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id,
        jsonb_build_object('count', (select count(*) from dropped))
    from q
)
select (select count(*) from dropped) as purged from q
