-- Per consumer, queue and hour. Each event counts in its own hour: a message leased in one hour and acked in the next counts
-- in both. The success rate is acks among all endings; the share is that of the leases of the queue.
with hours as (
    select queue_id, consumer, hour, max_by(queue, id) as queue, count_if(kind = 'leased') as leased,
        count_if(kind = 'acked') as acked, count_if(failed) as failed, count_if(kind = 'expired') as expired,
        count_if(kind = 'released') as released, {processing} as processing, first(exact) as exact
    from {marked}
    group by queue_id, consumer, hour
)
select queue_id, consumer, hour, queue, leased, acked, failed, expired, released,
    acked / nullif(acked + failed + expired, 0) as success_rate,
    leased / nullif(sum(leased) over (partition by queue_id, hour), 0) as share,
    processing[0] as processing_p50_s, processing[1] as processing_p95_s, processing[2] as processing_p99_s, exact,
    date_from_unix_date(int(floor(unix_seconds(hour) / 86400))) as date
from hours
