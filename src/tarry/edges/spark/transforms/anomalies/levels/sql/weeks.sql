-- What is expected in each hour of the week. The median is that of the same hour, if at least 120 minutes of it are known (two
-- weeks); else of the same hour of the other working days, or of the other days of the weekend, with 180 minutes (three days); else of
-- the same hour of all days, which is enough with 120 minutes (two days). unit is the deviation that a Poisson count and a few
-- percent of level explain, a factor of a duration, or a twentieth of what a gauge rarely exceeds; few is larger than one for
-- less than four weeks.
with weekly as (
    select date, queue_id, measure, scale, hour, percentile(x, 0.5, n) as median, sum(n) as n
    from {grown}
    group by date, queue_id, measure, scale, hour
), daily as (
    select date, queue_id, measure, scale, of_day, is_free, percentile(x, 0.5, n) as median, sum(n) as n
    from {grown}
    group by date, queue_id, measure, scale, of_day, is_free
), any_day as (
    select date, queue_id, measure, scale, of_day, percentile(x, 0.5, n) as median, sum(n) as n
    from {grown}
    group by date, queue_id, measure, scale, of_day
), ages as (
    select date, queue_id, measure, scale, sqrt(sqrt(greatest(double(:days) / count(distinct seen_on), 1D))) as few,
        percentile(abs(x), 0.9, n) as high
    from {grown}
    group by date, queue_id, measure, scale
), hours as (
    select date, queue_id, measure, scale, of_day, int(of_day + by * 24) as hour, by >= 5 as is_free, median, n
    from any_day lateral view explode(sequence(0, 6)) as by
)
select date, queue_id, measure, scale, hour, of_day, few, known.n, known.median,
    case measure when 'processing' then 0.15D when 'lag' then 0.25D when 'depth' then 0.05D * high + 1e-9D
        else sqrt(0.25D + pow(0.03D * known.median, 2)) end as unit
from (
    select hours.* except (median, n),
        case when weekly.n >= 120 then struct(weekly.median, weekly.n) when daily.n >= 180 then struct(daily.median, daily.n)
            else struct(hours.median, hours.n) end as known
    from hours
    left join daily using (date, queue_id, measure, scale, of_day, is_free)
    left join weekly using (date, queue_id, measure, scale, hour)
    where hours.n >= 120
)
join ages using (date, queue_id, measure, scale)
