-- Dead letters live again: ready now, attempts 0, a new version that knows the old one. Where the key is live already
-- the dead letter stays. Picked oldest first, inserted in key order; relies on dead_letter_order and message_key.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), picked as materialized (
    select distinct on (d.key) d.*
    from (
        select * from tarry.dead_letter l
        where l.queue = (select id from q)
          and (%(versions)s::bigint[] is null or l.version = any (%(versions)s::bigint[]))
          and not exists (select from tarry.message m where m.key = l.key and m.queue = l.queue)
        order by l.died_at, l.version
        limit %(limit)s::int
        for update skip locked
    ) d
    order by d.key, d.died_at, d.version
), revived as (
    insert into tarry.message (queue, key, payload, content_type, due_at, planned_at, created_at, priority, conflict,
        type, headers, lease_for, max_attempts, retry, origin)
    select queue, key, payload, content_type, now, now, now, priority, 0, type, headers, lease_for, max_attempts, retry,
        version
    from picked cross join lateral (select coalesce(%(now)s::timestamptz, statement_timestamp()) as now) t
    order by key
    on conflict (key, queue) do nothing
    returning key, version, origin, priority, due_at, payload
), gone as (
    delete from tarry.dead_letter where version in (select origin from revived)
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, detail)
    select 'redriven', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, r.key, r.version, 0, r.priority,
        r.due_at, octet_length(r.payload), jsonb_build_object('from_version', r.origin)
    from q cross join revived r
    where q.journal <> 'off'
)
select (select count(*) from revived) from q
