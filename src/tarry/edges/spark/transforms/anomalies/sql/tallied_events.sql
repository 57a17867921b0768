-- The tallies of one pass over events: how often each value of a measure occurred. The value is the lower bound of its bin;
-- values below one count as one. Leases are counted in spans of five seconds, the default of burst_dequeue.
with offers as (
    select * from {events} where kind in ('offered', 'updated')
), taken as (
    select queue_id, consumer, timestamp_seconds(floor(unix_seconds(at) / 5) * 5) as at, count(*) as n
    from {events}
    where kind = 'leased'
    group by all
), measured as (
    select at, queue_id, null as consumer, 'lag_us' as measure, lag_us as value from {sequence} where kind = 'leased'
    union all
    select at, queue_id, null, 'size', size from offers
    union all
    select at, queue_id, null, 'processing_us', unix_micros(at) - unix_micros(leased_at) from {events} where kind in ('acked', 'nacked')
    union all
    select at, queue_id, null, 'taken', n from taken
    union all
    select at, queue_id, consumer, 'taken', n from taken where consumer is not null
    union all
    select window_from, queue_id, null, 'operation', count from {operations}
), binned as (
    select date_from_unix_date(int(floor(unix_seconds(at) / 86400))) as date, queue_id, consumer, measure,
        pow(2D, floor(log2(greatest(double(value), 1D)) * 8 + 1e-9) / 8) as value
    from measured
    where value is not null
)
select date, queue_id, consumer, measure, cast(null as int) as scale, cast(null as int) as hour, value, count(*) as n
from binned
group by date, queue_id, consumer, measure, value
