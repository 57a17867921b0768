-- The next minutes of one queue or all that have load or backlog.
select coalesce(q.name, m.queue) as queue, m.minute, m.planned, m.retries, m.backlog, m.lag_s, m.saturated, m.run_id, m.fresh_at
from tarry.forecast_minute m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
order by m.minute, m.queue_id
limit %(limit)s::int
