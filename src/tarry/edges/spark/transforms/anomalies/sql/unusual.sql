-- The unusual minutes, one row each, with the scale of the highest score; side is 1 or -1. Sums over ten minutes have a limit
-- of their own: they overlap, so that an unusual one is never alone. Few failures and short times are not unusual.
with limited as (
    select *, if(scale = 1, double(:threshold), double(:threshold_of_ten)) as threshold,
        greatest(median + threshold * sigma, p99) as high,
        if(metric in ('failed', 'processing', 'lag'), double('-infinity'), least(median - threshold * sigma, p01)) as low,
        case when x > high then 1 when x < low then -1 end as side, abs(score) / threshold as weight
    from {scores}
    where metric = :metric
)
select queue_id, minute, side, max(queue) as queue, max(weight) as weight,
    max_by(struct(metric, scale, value, score, low, high), weight) as worst_value
from limited
where side is not null
group by queue_id, minute, side
