-- The unusual minutes, one row each, with the scale of the highest weight; side is 1 or -1. A minute is unusual beyond `threshold`
-- spreads and beyond the usual peak, or trough, of this time of day, if the effect has a minimum size too: a share of what is
-- expected, and some messages; that of a gauge is in its spread. Few failures and short times are not unusual.
with limited as (
    select *, high_middle + greatest(:threshold * sigma, :peak * peak) as high,
        if(metric in ('failed', 'processing', 'lag'), double('-infinity'), low_middle - greatest(:threshold * sigma, :trough * trough)) as low
    from {scores}
), sided as (
    select *, case when is_count and x > high and value >= pow(high_middle, 2) * (1 + :more) and value - pow(high_middle, 2) >= :least then 1
            when metric = 'depth' and (x > high or x < low) then if(x > high, 1, -1)
            when not is_count and x > high and x - high_middle >= ln(1 + double(:more)) then 1
            when x < low and value <= pow(low_middle, 2) * (1 - :less) and pow(low_middle, 2) - value >= :least then -1 end as side,
        if(x > high, (x - high_middle) / (high - high_middle), (low_middle - x) / (low_middle - low)) as weight
    from limited
)
select queue_id, minute, side, max(queue) as queue, max(weight) as weight,
    max_by(struct(metric, scale, value, score, low, high), weight) as worst_value
from sided
where side is not null
group by queue_id, minute, side
