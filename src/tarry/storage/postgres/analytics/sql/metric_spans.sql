-- The minutes of queues, aggregated into equal time spans or, without a step, as a whole. Aggregated here, because a
-- week of many queues exceeds the row limit of a response. Percentiles of minutes cannot be merged: p50 is the median
-- of the minutes' p50, weighted by their number of messages; p95 and p99 are those of the worst minute.
with minutes as (
    select coalesce(q.name, m.queue) as name, m.minute,
        case when %(step)s::interval is not null then date_bin(%(step)s::interval, m.minute, 'epoch') end as span,
        m.offered, m.leased, m.acked, m.nacked, m.expired, m.buried, m.depth, m.dead, m.lag_p50_s, m.lag_p95_s,
        m.lag_p99_s, m.processing_p50_s, m.processing_p95_s, m.processing_p99_s, m.fresh_at,
        -- Weights, small enough for sums that are plain integers.
        case when m.lag_p50_s is not null then least(greatest(m.leased, 1), 1000000000)::int end as deliveries,
        case when m.processing_p50_s is not null then least(greatest(m.acked + m.nacked, 1), 1000000000)::int end
            as attempts
    from tarry.metric_minute m left join tarry.queue q on q.id = m.queue_id
    where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
      and m.minute >= %(since)s::timestamptz and m.minute < %(until)s::timestamptz
),
weighed as (
    select *,
        sum(deliveries) over (together order by lag_p50_s) as lag_passed, sum(deliveries) over together as lag_all,
        sum(attempts) over (together order by processing_p50_s) as processing_passed,
        sum(attempts) over together as processing_all
    from minutes
    window together as (partition by name, span)
),
spans as (
    select name as queue, span, min(minute) as minute, sum(offered)::bigint as offered, sum(leased)::bigint as leased,
        sum(acked)::bigint as acked, sum(nacked)::bigint as nacked, sum(expired)::bigint as expired,
        sum(buried)::bigint as buried, (array_agg(depth order by minute desc))[1] as depth,
        (array_agg(dead order by minute desc))[1] as dead,
        min(lag_p50_s) filter (where lag_passed * 2 >= lag_all) as lag_p50_s, max(lag_p95_s) as lag_p95_s,
        max(lag_p99_s) as lag_p99_s,
        min(processing_p50_s) filter (where processing_passed * 2 >= processing_all) as processing_p50_s,
        max(processing_p95_s) as processing_p95_s, max(processing_p99_s) as processing_p99_s, max(fresh_at) as fresh_at
    from weighed
    group by name, span
)
select queue, minute, offered, leased, acked, nacked, expired, buried, depth, dead, fresh_at,
    case when lag_p50_s is not null then jsonb_build_object(
        'p50', lag_p50_s, 'p95', lag_p95_s, 'p99', lag_p99_s) end as lag,
    case when processing_p50_s is not null then jsonb_build_object(
        'p50', processing_p50_s, 'p95', processing_p95_s, 'p99', processing_p99_s) end as processing
from spans
order by queue, span
