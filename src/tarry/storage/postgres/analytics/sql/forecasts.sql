-- The forecast of one queue or all, earliest saturation first.
select coalesce(q.name, m.queue) as queue, m.planned, m.retries, m.capacity, m.saturated_at, m.recovered_at, m.peak_backlog,
    m.peak_at, m.sentence, m.run_id, m.fresh_at
from tarry.forecast m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
order by m.saturated_at nulls last, m.queue_id
