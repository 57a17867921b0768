-- The facts of each queue since the latest minute after which enough of its messages have finished: a few thousand messages show
-- the number of workers, and a busy queue has millions in an hour.
with latest as (
    select queue_id, min(minute) as since
    from (
        select queue_id, minute, acked, sum(acked) over (partition by queue_id order by minute desc) as ended
        from {metrics} where acked > 0 and minute >= timestamp(:since)
    )
    where ended - acked < :enough
    group by queue_id
)
select fact.* from {facts} fact join latest on fact.queue_id = latest.queue_id and fact.settled_at >= latest.since
