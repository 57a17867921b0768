-- What is expected in each hour of the week. The median is that of the same hour, if at least 120 minutes of it are known (two
-- weeks); else of the same hour of the other working days, or of the other days of the weekend, which is enough with 180 minutes
-- (three days). unit is the deviation that a Poisson count and a few percent of level explain, or a factor of a duration; few
-- is larger than one for less than four weeks.
with weekly as (
    select date, queue_id, measure, scale, hour, percentile(x, 0.5, n) as median, sum(n) as n
    from {grown}
    group by date, queue_id, measure, scale, hour
), daily as (
    select date, queue_id, measure, scale, of_day, is_free, percentile(x, 0.5, n) as median, sum(n) as n
    from {grown}
    group by date, queue_id, measure, scale, of_day, is_free
), known as (
    select date, queue_id, measure, scale, sqrt(sqrt(greatest(double(:days) / count(distinct seen_on), 1D))) as few
    from {grown}
    group by date, queue_id, measure, scale
), whole as (
    select date, queue_id, measure, scale, int(of_day + by * 24) as hour, median, n
    from daily lateral view explode(if(is_free, sequence(5, 6), sequence(0, 4))) as by
)
select date, queue_id, measure, scale, hour, of_day, few, n, is_enough, median,
    case measure when 'processing' then 0.15D when 'lag' then 0.25D else sqrt(0.25D + pow(0.03D * median, 2)) end as unit
from (
    select date, queue_id, measure, scale, hour, hour % 24 as of_day, if(weekly.n >= 120, weekly.median, whole.median) as median,
        if(weekly.n >= 120, weekly.n, whole.n) as n, coalesce(weekly.n >= 120, false) or whole.n >= 180 as is_enough
    from whole
    left join weekly using (date, queue_id, measure, scale, hour)
)
join known using (date, queue_id, measure, scale)
