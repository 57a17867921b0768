-- Every minute of every queue with a journal: a minute without events is a count of zero, so that a stall has rows. A queue
-- starts with its first whole minute and ends when it is deleted. value is for display (for counts the sum over the last
-- `scale` minutes), x is what is judged: of counts the square root, which for a Poisson count has the same spread of one half at
-- every level; of durations, which vary by factors, the logarithm. Durations have no value in minutes without events. A stall
-- of a queue with one message per minute does not show in any single minute, but does in ten.
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
        coalesce(double(nacked + expired), 0D) as failed, processing_p95_s as processing, lag_p95_s as lag
    from grid
    left join {per_minute} using (queue_id, minute)
), wide as (
    select *, count(*) over ten = 10 as are_ten, sum(offered) over ten as offered_10, sum(acked) over ten as acked_10,
        sum(failed) over ten as failed_10
    from dense
    window ten as (partition by queue_id order by minute rows between 9 preceding and current row)
), long as (
    select queue_id, queue, minute, stack(8, 'offered', 1, offered, 'offered', 10, if(are_ten, offered_10, null),
        'acked', 1, acked, 'acked', 10, if(are_ten, acked_10, null), 'failed', 1, failed, 'failed', 10, if(are_ten, failed_10, null),
        'processing', 1, processing, 'lag', 1, lag) as (metric, scale, value)
    from wide
)
select queue_id, queue, minute, metric, scale, value, date_from_unix_date(int(floor(unix_seconds(minute) / 86400))) as date,
    int(floor(unix_seconds(minute) / 3600 % 24)) as hour,
    if(metric in ('offered', 'acked', 'failed'), sqrt(value), ln(greatest(value, 0D) + 0.001D)) as x
from long
where value is not null
