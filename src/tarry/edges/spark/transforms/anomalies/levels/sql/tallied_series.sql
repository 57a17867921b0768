-- Histogram of x per hour and date, rounded to a twentieth of the scale: far below any spread.
select date, queue_id, cast(null as string) as consumer, metric as measure, scale, hour, round(x * 20) / 20 as value,
    count(*) as n
from {series}
group by date, queue_id, metric, scale, hour, round(x * 20)
