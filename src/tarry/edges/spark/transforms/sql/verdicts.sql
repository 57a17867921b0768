-- Per queue: when it first falls behind, when it has caught up, and its largest backlog.
with late as (
    select *, min(if(saturated, minute, null)) over (partition by queue_id) as saturated_at from {forecast}
)
select queue_id, first(queue) as queue, first(capacity) as capacity, sum(planned) as planned, sum(retries) as retries,
    max(saturated_at) as saturated_at, min(if(minute >= saturated_at and not saturated, minute, null)) as recovered_at,
    max(backlog) as peak_backlog, max_by(minute, struct(backlog, -unix_seconds(minute))) as peak_at
from late
group by queue_id
