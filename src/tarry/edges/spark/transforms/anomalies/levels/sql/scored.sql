-- Each minute with what is expected of it, from `low_middle` to `high_middle`: the value of this time of the week, with and without the
-- interpolation from hour to hour, which is wrong where a rate jumps on the hour or at midnight; and the former at the
-- level of the last two hours (the median of their twelve ratios, or differences), within a factor of four, or four spreads of a
-- gauge. So a day at another level is not unusual all day long, and what follows an outage is not either. Few failures have no
-- level. The score is in spreads.
with expected as (
    select series.*, median, sigma, peak, trough, metric in ('offered', 'acked', 'failed') as is_count,
        if(metric = 'depth', 4 * sigma, 1D) as widest,
        median + if(phase < 0, -phase * (before - median), phase * (after - median)) as expected,
        floor(unix_seconds(minute) / 600) as block
    from {series} series
    join (select date, queue_id, metric, scale, hour, median, before, after, sigma, peak, trough from {bands})
        using (date, queue_id, metric, scale, hour)
    where metric = :metric
), blocks as (
    select queue_id, scale, block, if(first(is_count), if(percentile(expected, 0.5) >= 1, percentile(x, 0.5) / percentile(expected, 0.5), null),
        percentile(x, 0.5) - percentile(expected, 0.5)) as ratio
    from expected
    where metric <> 'failed'
    group by queue_id, scale, block
), levels as (
    select queue_id, scale, block, sort_array(collect_list(ratio) over (partition by queue_id, scale order by block
        range between 12 preceding and 1 preceding)) as ratios
    from blocks
), levelled as (
    select expected.*, get(ratios, int(size(ratios) / 2)) as level,
        if(is_count, expected * least(greatest(coalesce(level, 1D), 0.5D), 2D),
            expected + least(greatest(coalesce(level, 0D), -widest), widest)) as shifted
    from expected
    left join levels using (queue_id, scale, block)
), bounded as (
    select *, least(expected, shifted, median) as low_middle, greatest(expected, shifted, median) as high_middle from levelled
)
select * except (median, block, level, shifted, widest),
    case when x > high_middle then x - high_middle when x < low_middle then x - low_middle else 0D end / sigma as score
from bounded
