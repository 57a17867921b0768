-- Histogram of x per hour and date, rounded to a twentieth of the scale, and a gauge to one percent: far below any spread. What
-- is judged every five minutes stands for five.
with rounded as (
    select date, queue_id, metric, scale, hour,
        if(metric = 'depth', if(x = 0, 0D, sign(x) * exp(round(ln(abs(x)) * 100) / 100)), round(x * 20) / 20) as value
    from {series}
)
select date, queue_id, cast(null as string) as consumer, metric as measure, scale, hour, value,
    if(scale = 5, 1, 5) * count(*) as n
from rounded
group by date, queue_id, metric, scale, hour, value
