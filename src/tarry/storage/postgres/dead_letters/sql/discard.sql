-- Delete the dead letters of a queue, or those that match a filter. Returns their number.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), gone as (
    delete from tarry.dead_letter d
    where d.queue = (select id from q)
      and (%(versions)s::bigint[] is null or d.version = any (%(versions)s::bigint[]))
      and (%(fingerprint)s::text is null or d.fingerprint = %(fingerprint)s)
      and (%(type)s::text is null or d.type = %(type)s)
      and (%(key_prefix)s::text is null or starts_with(d.key, %(key_prefix)s))
      and d.died_at >= coalesce(%(died_from)s::timestamptz, '-infinity')
      and d.died_at < coalesce(%(died_to)s::timestamptz, 'infinity')
    returning key, version, attempt, priority, due_at
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at)
    select 'discarded', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, g.key, g.version, g.attempt, g.priority,
        g.due_at
    from q cross join gone g
    where q.journal <> 'off'
)
select (select count(*) from gone) as discarded from q
