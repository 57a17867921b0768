-- One row per queue and minute with events; with_depth turns net and dead_net into depths. Percentiles are exact, or of
-- percentile_approx, whose rank error is at most one in 10,000: p99 lies within p98.99 and p99.01.
with minutes as (
    select queue_id, minute, max_by(queue, id) as queue,
        count_if(kind = 'offered') as offered, count_if(kind = 'updated') as updated, count_if(kind = 'redriven') as redriven,
        count_if(kind = 'leased') as leased, count_if(kind = 'acked') as acked, count_if(kind = 'nacked') as nacked,
        count_if(kind = 'released') as released, count_if(kind = 'expired') as expired, count_if(kind = 'buried') as buried,
        count_if(kind = 'dropped') as dropped, count_if(kind = 'discarded') as discarded, count_if(kind = 'refused') as refused,
        coalesce(sum(if(kind in ('offered', 'updated'), size, null)), 0) as bytes_offered,
        sum(net) as net, sum(dead_net) as dead_net,
        {lag} as lag, {wait} as wait, {processing} as processing, first(exact) as exact
    from {marked}
    group by queue_id, minute
)
select queue_id, queue, minute, offered, updated, redriven, leased, acked, nacked, released, expired, buried, dropped,
    discarded, refused, bytes_offered, net, dead_net, lag[0] as lag_p50_s, lag[1] as lag_p95_s, lag[2] as lag_p99_s,
    wait[0] as wait_p50_s, wait[1] as wait_p95_s, wait[2] as wait_p99_s, processing[0] as processing_p50_s,
    processing[1] as processing_p95_s, processing[2] as processing_p99_s, exact,
    date_from_unix_date(int(floor(unix_seconds(minute) / 86400))) as date
from minutes
