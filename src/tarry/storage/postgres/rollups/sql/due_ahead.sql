-- The number of live messages that become due, by queue and slices of `every` seconds from `since` on. The queues share `limit`:
-- only the first messages of each queue and priority along message_order are read, so the cost is bounded.
with q as materialized (
    select id, name from tarry.queue where deleted_at is null and (%(queue)s::text is null or name = %(queue)s)
)
select q.name as queue, date_bin(make_interval(secs => %(every)s), m.due_at, %(since)s::timestamptz) as start_at,
    count(*)::int as messages, count(*) filter (where m.attempt > 0)::int as retries
from q cross join generate_series(0, 9) as level(priority) cross join lateral (
    select c.due_at, c.attempt from tarry.message c
    where (c.queue + 0) = q.id and c.priority = level.priority::smallint
      and c.due_at >= %(since)s::timestamptz and c.due_at < %(until)s::timestamptz
    order by c.due_at, c.version
    limit (select greatest(%(least)s::int, %(limit)s::int / greatest(1, count(*)))::int from q)
) m
group by 1, 2
order by 2, 1
