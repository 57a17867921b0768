-- Sums per queue and minute of the stored row, if any, and new events. Sketches of the durations are stored with the
-- percentiles, because percentiles cannot be added.
-- size: payload bytes. operation: messages offered in one transaction.
-- stored: rows of earlier rounds; those without new events stay as they are.
with event as (
    select *, timestamp_seconds(floor(unix_seconds(at) / 60) * 60) as minute from {traced}
), new as (
    select queue_id, minute, max_by(queue, id) as queue, max(id) as last_id,
        count_if(kind = 'offered') as offered, count_if(kind = 'updated') as updated,
        count_if(kind = 'redriven') as redriven, count_if(kind = 'leased') as leased,
        count_if(kind = 'acked') as acked, count_if(kind = 'nacked') as nacked,
        count_if(kind = 'released') as released, count_if(kind = 'expired') as expired,
        count_if(kind = 'buried') as buried, count_if(kind = 'dropped') as dropped,
        count_if(kind = 'discarded') as discarded, count_if(kind = 'refused') as refused,
        coalesce(sum(if(kind in ('offered', 'updated'), size, null)), 0) as bytes_offered, sum(net) as net, sum(dead_net) as dead_net
    from event
    group by queue_id, minute
), old as (
    select * from {stored}
), tallies as (
    select struct(queue_id, minute) as subject, stack(4, 'lag', lag_us, 'wait', wait_us, 'processing', processing_us,
        'size', if(kind in ('offered', 'updated'), bigint(size), null)) as (measure, value), 1 as n
    from event
    union all
    -- How many messages were offered in one transaction. A transaction is always in one round.
    select struct(queue_id, min(minute) as minute), 'operation', count(*), 1 from event where kind in ('offered', 'updated') group by queue_id, xid
    union all
    select struct(queue_id, minute), measure, value, n
    from (select * from old left semi join new using (queue_id, minute))
        lateral view explode(map('lag', lag, 'wait', wait, 'processing', processing, 'size', size, 'operation', operation)) as measure, tally
        lateral view explode(tally) as value, n
), sketches as (
    select subject.*, is_rounded, measures from {sketched}
)
select queue_id, minute, if(old.last_id > new.last_id, old.queue, coalesce(new.queue, old.queue)) as queue,
    greatest(new.last_id, old.last_id) as last_id, new.last_id is not null as is_new,
    coalesce(new.offered, 0) + coalesce(old.offered, 0) as offered,
    coalesce(new.updated, 0) + coalesce(old.updated, 0) as updated,
    coalesce(new.redriven, 0) + coalesce(old.redriven, 0) as redriven,
    coalesce(new.leased, 0) + coalesce(old.leased, 0) as leased,
    coalesce(new.acked, 0) + coalesce(old.acked, 0) as acked,
    coalesce(new.nacked, 0) + coalesce(old.nacked, 0) as nacked,
    coalesce(new.released, 0) + coalesce(old.released, 0) as released,
    coalesce(new.expired, 0) + coalesce(old.expired, 0) as expired,
    coalesce(new.buried, 0) + coalesce(old.buried, 0) as buried,
    coalesce(new.dropped, 0) + coalesce(old.dropped, 0) as dropped,
    coalesce(new.discarded, 0) + coalesce(old.discarded, 0) as discarded,
    coalesce(new.refused, 0) + coalesce(old.refused, 0) as refused,
    coalesce(new.bytes_offered, 0) + coalesce(old.bytes_offered, 0) as bytes_offered,
    coalesce(new.net, 0) + coalesce(old.net, 0) as net,
    coalesce(new.dead_net, 0) + coalesce(old.dead_net, 0) as dead_net,
    if(new.last_id is null, old.lag_p50_s, measures['lag'].seconds[0]) as lag_p50_s,
    if(new.last_id is null, old.lag_p95_s, measures['lag'].seconds[1]) as lag_p95_s,
    if(new.last_id is null, old.lag_p99_s, measures['lag'].seconds[2]) as lag_p99_s,
    if(new.last_id is null, old.wait_p50_s, measures['wait'].seconds[0]) as wait_p50_s,
    if(new.last_id is null, old.wait_p95_s, measures['wait'].seconds[1]) as wait_p95_s,
    if(new.last_id is null, old.wait_p99_s, measures['wait'].seconds[2]) as wait_p99_s,
    if(new.last_id is null, old.processing_p50_s, measures['processing'].seconds[0]) as processing_p50_s,
    if(new.last_id is null, old.processing_p95_s, measures['processing'].seconds[1]) as processing_p95_s,
    if(new.last_id is null, old.processing_p99_s, measures['processing'].seconds[2]) as processing_p99_s,
    if(new.last_id is null, old.lag, measures['lag'].tally) as lag,
    if(new.last_id is null, old.wait, measures['wait'].tally) as wait,
    if(new.last_id is null, old.processing, measures['processing'].tally) as processing,
    if(new.last_id is null, old.size, measures['size'].tally) as size,
    if(new.last_id is null, old.operation, measures['operation'].tally) as operation,
    coalesce(old.exact, true) and not coalesce(is_rounded, false) as exact, old.depth, old.dead, old.round,
    date_from_unix_date(int(floor(unix_seconds(minute) / 86400))) as date
from new
full join old using (queue_id, minute)
left join sketches using (queue_id, minute)
