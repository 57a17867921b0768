-- The number of live messages that become due, by queue and by slices of `every` seconds from `since` on. Retries are messages
-- with earlier attempts. One pass over the live table, for a forecast.
select q.name as queue, date_bin(make_interval(secs => %(every)s), m.due_at, %(since)s::timestamptz) as start_at,
    count(*)::int as messages, count(*) filter (where m.attempt > 0)::int as retries
from tarry.message m join tarry.queue q on q.id = m.queue and q.deleted_at is null
where m.due_at >= %(since)s and m.due_at < %(until)s
group by 1, 2
order by 2, 1
