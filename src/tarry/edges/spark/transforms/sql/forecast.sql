-- Load, capacity and backlog of every queue and minute, starting with the current minute.
-- The backlog is carried over: b' = max(0, b + planned - capacity). With s the running sum of planned - capacity plus the
-- messages ready now, that is s - min(0, lowest s so far), which two windows compute.
with every_minute as (
    select *, explode(sequence(:first, :last, 60)) as second from {queues}
), load as (
    select queue_id, unix_seconds(minute) as second, sum(planned) as planned, sum(retries) as retries
    from (
        select queue_id, minute, planned, retries from {planned}
        union all
        select queue_id, minute, planned, 0 from {schedules}
    )
    group by queue_id, minute
), rated as (
    select /*+ broadcast(known) */ ahead.queue_id, queue, second, ready, target_lag_s, coalesce(load.planned, 0) as planned,
        coalesce(load.retries, 0) as retries, if(paused, 0D, known.capacity) as capacity,
        -- Of the current minute, only the rest is left.
        if(second = :first, :rest, 1D) as share
    from every_minute ahead
    left join {capacity} known on known.queue_id = ahead.queue_id
    left join load using (queue_id, second)
), summed as (
    select *, ready + sum(planned - coalesce(capacity, 0D) * share) over (
        partition by queue_id order by second rows between unbounded preceding and current row) as running
    from rated
), backed as (
    select *, running - least(0D, min(running) over (
        partition by queue_id order by second rows between unbounded preceding and current row)) as backlog
    from summed
), lagging as (
    select *, if(capacity > 0, backlog / capacity * 60, null) as lag_s from backed
)
-- With a capacity of zero, any backlog is late; with an unknown capacity, the result is null.
select queue_id, queue, timestamp_seconds(second) as minute, planned, retries, capacity, backlog, lag_s,
    coalesce(lag_s > target_lag_s, capacity = 0 and backlog > 0) as saturated
from lagging
