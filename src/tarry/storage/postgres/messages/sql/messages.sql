-- A page of live messages in due order, behind a place; the walk is bounded, so that looking cannot hurt the queue.
with q as materialized (
    select id, name, max_attempts from tarry.queue where name = %(queue)s and deleted_at is null
), walked as materialized (
    select w.*
    from q cross join generate_series(9, 0, -1) as level(priority)
    cross join lateral (
        select m.*, tarry.message_state(m, coalesce(%(now)s::timestamptz, clock_timestamp())) as state
        from tarry.message m
        where (m.queue + 0) = q.id and m.priority = level.priority::smallint
          and (m.due_at, m.version) > (coalesce(%(after_due_at)s::timestamptz, '-infinity'), coalesce(%(after_version)s::bigint, 0))
        order by m.due_at, m.version
        limit %(walk)s::int
    ) w
    where (%(state)s::text is null or w.state = %(state)s) and (%(type)s::text is null or w.type = %(type)s)
      and (%(priority)s::int is null or w.priority = %(priority)s)
      and (%(key_prefix)s::text is null or starts_with(w.key, %(key_prefix)s))
)
select q.name, w.key, w.payload, w.version, w.state, w.attempt, w.priority, w.due_at, w.created_at,
    nullif(w.lease_until, '-infinity'), case when w.token is not null then w.consumer end, w.type, w.headers, w.content_type,
    coalesce(w.max_attempts, q.max_attempts), w.last_error, w.origin, w.max_attempts, w.lease_for, w.retry
from q left join lateral (select * from walked order by due_at, version limit %(limit)s::int) w on true
order by w.due_at, w.version
