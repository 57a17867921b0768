-- Every minute of every queue with a journal: a minute without events is a count of zero, so that a stall has rows. A queue
-- starts with its first whole minute and ends when it is deleted. Counts are judged as sums over the last five and the last
-- thirty minutes: a stall of a queue with one message per minute does not show in any single minute; durations as the median
-- of the last five. value is for display, x is what is judged: of counts the square root, which for a Poisson count has the same
-- spread of one half at every level; of durations, which vary by factors, the logarithm. hour is the hour of the week by local
-- clocks (0: Monday, 00:00), a holiday has those of a Sunday; phase is the place in the hour, from -0.5 to 0.5.
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
        convert_timezone('UTC', :zone, timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(0, 0, unix_seconds(minute) / 60)) as local
    from grid
    left join {per_minute} using (queue_id, minute)
), wide as (
    select *, count(*) over five = 5 as are_five, count(*) over thirty = 30 as are_thirty,
        sum(offered) over five as offered_5, sum(acked) over five as acked_5, sum(failed) over five as failed_5,
        sum(offered) over thirty as offered_30, sum(acked) over thirty as acked_30, sum(failed) over thirty as failed_30,
        sort_array(collect_list(processing) over five) as processings, sort_array(collect_list(lag) over five) as lags
    from dense
    window five as (partition by queue_id order by minute rows between 4 preceding and current row),
        thirty as (partition by queue_id order by minute rows between 29 preceding and current row)
), long as (
    select queue_id, queue, minute, local, stack(8, 'offered', 5, if(are_five, offered_5, null),
        'offered', 30, if(are_thirty, offered_30, null), 'acked', 5, if(are_five, acked_5, null),
        'acked', 30, if(are_thirty, acked_30, null), 'failed', 5, if(are_five, failed_5, null),
        'failed', 30, if(are_thirty, failed_30, null), 'processing', 5, get(processings, int(size(processings) / 2)),
        'lag', 5, get(lags, int(size(lags) / 2))) as (metric, scale, value)
    from wide
)
select queue_id, queue, minute, metric, scale, value, date_from_unix_date(int(floor(unix_seconds(minute) / 86400))) as date,
    if(array_contains(split(:holidays, ','), date_format(local, 'yyyy-MM-dd')), 6, weekday(local)) * 24 + hour(local) as hour,
    (minute(local) - 29.5D) / 60 as phase,
    if(metric in ('offered', 'acked', 'failed'), sqrt(value), ln(greatest(value, 0D) + 0.001D)) as x
from long
where value is not null
