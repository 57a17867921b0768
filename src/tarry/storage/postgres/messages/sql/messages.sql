-- A page of live messages in due order, after a position. The scan is bounded, so listings cannot slow the queue down.
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
select case when %(payloads)s::boolean then m.payload else '' end as payload,
    -- include: messages/_message
from q left join lateral (select * from walked order by due_at, version limit %(limit)s::int) m on true
order by m.due_at, m.version
