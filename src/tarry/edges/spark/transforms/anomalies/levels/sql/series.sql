-- Every minute of every queue with a journal: a minute without events is a count of zero, so that a stall has rows, and has the
-- depth of the minute before. A queue starts with its first whole minute and ends when it is deleted. Counts are judged as sums over
-- the last five minutes, and durations and the depth as medians; every five minutes also over the last 15, and counts over the
-- last 30: a small deviation that lasts, or a stall of a queue with one message per minute, does not show in five minutes.
-- value is for display, x is what is judged: of counts the square root, which for a Poisson count has the same spread of one
-- half at every level; of durations, which vary by factors, the logarithm; the depth is a gauge, whose spread is additive. hour
-- is the hour of the week by local clocks (0: Monday, 00:00), a holiday has those of a Sunday; phase is the place in the hour,
-- from -0.5 to 0.5.
with living as (
    select queue_id, queue, unix_seconds(greatest(created_at, timestamp(:since)) + interval 59999 millisecond) as begin_s,
        unix_seconds(least(coalesce(deleted_at, timestamp(:until)), timestamp(:until))) - 60 as end_s
    from {queues}
    where journaled <> 'off'
), grid as (
    select queue_id, queue,
        explode(transform(sequence(floor(begin_s / 60), floor(end_s / 60)), m -> timestamp_seconds(m * 60))) as minute
    from living
    where floor(begin_s / 60) <= floor(end_s / 60)
), dense as (
    select queue_id, minute, grid.queue, coalesce(double(offered + updated), 0D) as offered, coalesce(double(acked), 0D) as acked,
        coalesce(double(nacked + expired), 0D) as failed, processing_p95_s as processing, lag_p95_s as lag,
        double(last_value(depth, true) over (partition by queue_id order by minute)) as depth,
        floor(unix_seconds(minute) / 60) % 5 = 4 as is_fifth,
        convert_timezone('UTC', :zone, timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, unix_seconds(minute) / 60)) as local
    from grid
    left join {per_minute} using (queue_id, minute)
), wide as (
    select *, count(*) over five = 5 as are_five, count(*) over fifteen = 15 and is_fifth as are_fifteen,
        count(*) over thirty = 30 and is_fifth as are_thirty,
        sum(offered) over five as offered_5, sum(acked) over five as acked_5, sum(failed) over five as failed_5,
        sum(offered) over fifteen as offered_15, sum(acked) over fifteen as acked_15, sum(failed) over fifteen as failed_15,
        sum(offered) over thirty as offered_30, sum(acked) over thirty as acked_30, sum(failed) over thirty as failed_30,
        sort_array(collect_list(processing) over five) as processings_5, sort_array(collect_list(lag) over five) as lags_5,
        sort_array(collect_list(processing) over fifteen) as processings_15,
        sort_array(collect_list(lag) over fifteen) as lags_15, sort_array(collect_list(depth) over five) as depths_5
    from dense
    window five as (partition by queue_id order by minute rows between 4 preceding and current row),
        fifteen as (partition by queue_id order by minute rows between 14 preceding and current row),
        thirty as (partition by queue_id order by minute rows between 29 preceding and current row)
), long as (
    select queue_id, queue, minute, local, stack(14,
        'offered', 5, if(are_five, offered_5, null), 'offered', 15, if(are_fifteen, offered_15, null), 'offered', 30, if(are_thirty, offered_30, null),
        'acked', 5, if(are_five, acked_5, null), 'acked', 15, if(are_fifteen, acked_15, null), 'acked', 30, if(are_thirty, acked_30, null),
        'failed', 5, if(are_five, failed_5, null), 'failed', 15, if(are_fifteen, failed_15, null), 'failed', 30, if(are_thirty, failed_30, null),
        'processing', 5, get(processings_5, int(size(processings_5) / 2)), 'lag', 5, get(lags_5, int(size(lags_5) / 2)),
        'processing', 15, if(is_fifth, get(processings_15, int(size(processings_15) / 2)), null),
        'lag', 15, if(is_fifth, get(lags_15, int(size(lags_15) / 2)), null),
        'depth', 5, get(depths_5, int(size(depths_5) / 2))) as (metric, scale, value)
    from wide
)
select queue_id, queue, minute, metric, scale, value, date_from_unix_date(int(floor(unix_seconds(minute) / 86400))) as date,
    if(array_contains(split(:holidays, ','), date_format(local, 'yyyy-MM-dd')), 6, weekday(local)) * 24 + hour(local) as hour,
    (minute(local) - 29.5D) / 60 as phase,
    case when metric in ('offered', 'acked', 'failed') then sqrt(value) when metric = 'depth' then value
        else ln(greatest(value, 0D) + 0.001D) end as x
from long
where value is not null
