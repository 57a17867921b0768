-- Median, spread and outer percentiles of each metric for each hour of the judged dates. From the same hour of the week, if at
-- least `weekly` minutes of it are known (two weeks); else from the same hour of the other working days, or of the other weekend
-- days, if at least `daily` minutes are known (three days); else nothing is judged. Median and MAD stay stable as long as fewer
-- than half of the minutes are anomalous. The spread is at least that of a Poisson count, or a factor; of counts also a tenth
-- of the level (0.05 of its root): four weeks are too few to measure how levels drift.
with summed as (
    select date, queue_id, measure, scale, hour, value, sum(if(date_diff(date, seen_on) % 7 = 0, n, 0)) as same, sum(n) as alike
    from {past}
    where hour is not null and (weekday(date) in (5, 6)) = (weekday(seen_on) in (5, 6))
    group by date, queue_id, measure, scale, hour, value
), chosen as (
    select *, if(sum(same) over (partition by date, queue_id, measure, scale, hour) >= :weekly, same, alike) as n from summed
), middles as (
    select date, queue_id, measure, scale, hour, sum(n) as total, max(same > 0) as has_same,
        percentile(value, array(0.01, 0.5, 0.99), n) as points, collect_list(struct(value, n)) as tallies
    from chosen
    where n > 0
    group by date, queue_id, measure, scale, hour
), each as (
    select *, inline(tallies)
    from middles
    where total >= :weekly and (total >= :daily or has_same)
), spread as (
    select date, queue_id, measure, scale, hour, first(total) as n, first(points) as points,
        percentile(abs(value - points[1]), 0.5, n) as mad
    from each
    group by date, queue_id, measure, scale, hour
)
select date, queue_id, measure as metric, scale, hour, n, points[1] as median,
    greatest(mad * 1.4826D, case measure when 'processing' then 0.15D when 'lag' then 0.25D else 0.5D end,
        if(measure in ('offered', 'acked', 'failed'), points[1] * 0.05D, null)) as sigma,
    points[0] as p01, points[2] as p99
from spread
