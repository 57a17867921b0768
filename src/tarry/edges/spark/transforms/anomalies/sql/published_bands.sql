-- Expected bands of the last seven days, hour by hour: each hour of the week is published once a week.
with recent as (
    select /*+ broadcast(queues) */ bands.*, queues.queue, weekday(date) * 24 + hour as hour_of_week,
        least(median - sigma * 3.5D, p01) as lowest, greatest(median + sigma * 3.5D, p99) as highest
    from {bands} bands
    join {queues} queues using (queue_id)
    where scale = 1 and date > date(:after)
)
select queue_id, metric, hour_of_week, max_by(queue, date) as queue, max_by({low}, date) as low, max_by({middle}, date) as middle,
    max_by({high}, date) as high, max_by(n, date) as minutes
from recent
group by queue_id, metric, hour_of_week
