-- The tallies of dates from their minutes and hours: how often each value of a measure occurred. The value is the lower bound of
-- its bin; values below one count as one.
with measured as (
    select date, queue_id, cast(null as string) as consumer, measure, value, n
    from {minutes}
        lateral view explode(map('lag_us', lag, 'processing_us', processing, 'size', size, 'operation', operation)) as measure, tally
        lateral view explode(tally) as value, n
    union all
    select date, queue_id, inline(array(struct(null as consumer), struct(consumer))), 'taken', value, n
    from {hours} lateral view explode(taken) as value, n
), binned as (
    select date, queue_id, consumer, measure, pow(2D, floor(log2(greatest(double(value), 1D)) * 8 + 1e-9) / 8) as value, n from measured
)
select date, queue_id, consumer, measure, cast(null as int) as scale, cast(null as int) as hour, value, sum(n) as n
from binned
group by date, queue_id, consumer, measure, value
