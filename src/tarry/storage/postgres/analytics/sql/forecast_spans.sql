-- The forecast aggregated into equal time spans or, without a step, as a whole, like metric_spans.
select coalesce(q.name, m.queue) as queue, min(m.minute) as minute, max(m.minute) as last_minute,
    sum(m.planned)::bigint as planned, sum(m.retries)::bigint as retries, max(m.backlog) as backlog
from tarry.forecast_minute m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s) and (m.planned > 0 or m.backlog > 0)
group by coalesce(q.name, m.queue),
    case when %(step)s::interval is not null then date_bin(%(step)s::interval, m.minute, 'epoch') end
order by 1, 2
