-- The usual values of one metric of one queue, per hour of the week.
select coalesce(q.name, b.queue), b.metric, b.hour_of_week, b.low, b.middle, b.high, b.minutes, b.run_id, b.fresh_at
from tarry.metric_band b left join tarry.queue q on q.id = b.queue_id
where b.queue_id = %(queue_id)s::int and b.metric = %(metric)s::text
order by b.hour_of_week
