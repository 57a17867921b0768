-- The tallies of the four weeks before each judged date, raised by weekly growth up to that date: the median ratio of an hour
-- to the same one a week before. Durations do not grow.
with cells as (
    select queue_id, measure, scale, hour, date as seen_on, percentile(value, 0.5, n) as middle
    from {tallies}
    where measure in ('offered', 'acked', 'failed')
    group by queue_id, measure, scale, hour, date
), ratios as (
    select queue_id, measure, scale, seen_on, after.middle / before.middle as ratio
    from cells after
    join (select * except (seen_on), date_add(seen_on, 7) as seen_on from cells) before using (queue_id, measure, scale, hour, seen_on)
    where after.middle > 1 and before.middle > 1
), growth as (
    select judged.date, queue_id, measure, scale, least(greatest(percentile(ratio, 0.5), 0.9D), 1.12D) as growth
    from ratios
    join (select distinct date from {judged}) judged on date_diff(judged.date, seen_on) between 1 and :days - 7
    group by judged.date, queue_id, measure, scale
    having count(*) >= 50
)
select /*+ broadcast(growth) */ date, queue_id, measure, scale, hour, hour % 24 as of_day, hour >= 120 as is_free, seen_on,
    value * pow(coalesce(growth, 1D), date_diff(date, seen_on) / 7) as x, n
from {past} past
left join growth using (date, queue_id, measure, scale)
where hour is not null
