-- The usual values of a queue on each judged date, from the days before it. High quantiles are the upper bound of their bin
-- (bins grow by 2^(1/8)), so that values in the same bin do not exceed them.
with usual as (
    select date, queue_id, consumer, measure, sum(n) as n, percentile(value, array(0.01, 0.99, 0.999), n) as points
    from {past}
    where hour is null
    group by date, queue_id, consumer, measure
)
select date, queue_id, consumer, measure, n, points[0] as p01, points[1] * pow(2D, 1 / 8) as p99, points[2] * pow(2D, 1 / 8) as p999
from usual
