-- Redrive dead letters: ready now, attempts 0, a new version that refers to the old one. If the key is live, the dead letter
-- stays; of several letters with the same key, the oldest is redriven. Versions are allocated in order of death; rows are locked
-- first and inserted in key order (lock order): concurrent redrives cannot revive the same letter.
with q as materialized (
    select id, journal from tarry.queue where name = %(queue)s and deleted_at is null
), candidate as materialized (
    select distinct on (d.key) d.version, d.died_at
    from tarry.dead_letter d
    where d.queue = (select id from q)
      and d.version = any (%(versions)s::bigint[])
      and not exists (select from tarry.message m where m.key = d.key and m.queue = d.queue)
    order by d.key, d.died_at, d.version
), locked as materialized (
    select * from tarry.dead_letter
    where version = any (array(select version from candidate order by died_at, version limit %(limit)s::int))
    for update skip locked
), numbered as materialized (
    select array(select nextval('tarry.version_seq') from locked) as versions
), moved as (
    insert into tarry.message (version, queue, key, payload, content_type, due_at, planned_at, created_at, priority,
        conflict, type, headers, lease_for, max_attempts, retry, origin)
    select (select versions from numbered)[l.place], l.queue, l.key, l.payload, l.content_type, t.now, t.now, t.now,
        l.priority, 0, l.type, l.headers, l.lease_for, l.max_attempts, l.retry, l.version
    from (select *, row_number() over (order by died_at, version) as place from locked) l
    cross join (select coalesce(%(now)s::timestamptz, statement_timestamp()) as now) t
    order by l.key
    on conflict (key, queue) do nothing
    returning key, version, origin, priority, due_at, payload, type
), gone as (
    delete from tarry.dead_letter where version = any (array(select origin from moved))
), journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, detail)
    select 'redriven', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, r.key, r.version, 0, r.priority,
        r.due_at, octet_length(r.payload), jsonb_build_object('from_version', r.origin)
    from q cross join moved r
    where q.journal <> 'off'
)
select count(d.key) as redriven,
    -- include: wakeup/_notify
from q left join moved d on true
group by q.id
