-- What is usual for each metric in each hour of the judged dates: the median of the hour with its neighbours, for the way from
-- hour to hour, and how far values are from it. Deviations are pooled: the spread (by MAD, at least one unit) over all days
-- and three hours, so that it includes how days differ; and the usual peak and trough of seven hours of a day. The peak is what
-- one day in ten exceeds, and half as much more as that is above the median of the peaks: where the peaks of days differ much,
-- the next one may be higher than all before. The trough is what one day in five exceeds.
with deviations as (
    select date, queue_id, measure, scale, seen_on, weeks.of_day, round((x - median) / unit, 1) as z, sum(grown.n) as n
    from {grown} grown
    join {weeks} weeks using (date, queue_id, measure, scale, hour)
    group by date, queue_id, measure, scale, seen_on, weeks.of_day, round((x - median) / unit, 1)
), spreads as (
    select date, queue_id, measure, scale, near.of_day, percentile(abs(z), 0.5, n) * 1.4826D as spread
    from deviations lateral view explode(transform(sequence(23, 25), by -> (of_day + by) % 24)) near as of_day
    group by date, queue_id, measure, scale, near.of_day
), extremes as (
    select date, queue_id, measure, scale, seen_on, near.of_day, max(highest) as highest, max(lowest) as lowest
    from (select date, queue_id, measure, scale, seen_on, of_day, max(z) as highest, max(-z) as lowest from deviations
        group by date, queue_id, measure, scale, seen_on, of_day)
        lateral view explode(transform(sequence(21, 27), by -> (of_day + by) % 24)) near as of_day
    group by date, queue_id, measure, scale, seen_on, near.of_day
), peaks as (
    select date, queue_id, measure, scale, of_day, 1.5D * percentile(highest, 0.9) - 0.5D * percentile(highest, 0.5) as peak,
        percentile(lowest, 0.8) as trough
    from extremes
    group by date, queue_id, measure, scale, of_day
), neighbours as (
    select *, lag(median) over of_week as before, lead(median) over of_week as after,
        first(median) over (partition by date, queue_id, measure, scale order by hour) as monday,
        first(median) over (partition by date, queue_id, measure, scale order by hour desc) as sunday
    from {weeks}
    window of_week as (partition by date, queue_id, measure, scale order by hour)
)
select date, queue_id, measure as metric, scale, hour, n, median,
    coalesce(before, sunday) as before, coalesce(after, monday) as after,
    greatest(spread, 1D) * unit * few as sigma, greatest(peak, 0D) * unit as peak, greatest(trough, 0D) * unit as trough
from neighbours
join (select distinct date, hour from {judged}) using (date, hour)
join spreads using (date, queue_id, measure, scale, of_day)
join peaks using (date, queue_id, measure, scale, of_day)
