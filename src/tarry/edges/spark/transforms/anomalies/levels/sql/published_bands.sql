-- Expected bands of the last seven days, hour by hour in UTC: each hour of the week is published once a week. Judged are sums over
-- five minutes; shown is one minute, which has a fifth of the level and the same spread by its square root.
with recent as (
    select /*+ broadcast(queues) */ bands.* except (median), queues.queue, weekday(date) * 24 + utc_hour as hour_of_week,
        metric in ('offered', 'acked', 'failed') as is_count, if(is_count, median / sqrt(5D), median) as median
    from {bands} bands
    join {judged} judged using (date, hour)
    join {queues} queues using (queue_id)
    where scale = 5 and date > date(:after)
), bounded as (
    select *, median - sigma * 3D as lowest, median + sigma * 3D as highest from recent
)
select queue_id, metric, hour_of_week, max_by(queue, date) as queue, max_by({low}, date) as low, max_by({middle}, date) as middle,
    max_by({high}, date) as high, max_by(n, date) as minutes
from bounded
group by queue_id, metric, hour_of_week
