-- Sums per consumer, queue and hour of the stored row, if any, and new events; see measured.sql. Each event counts in its own
-- hour: a message leased in one hour and acked in the next counts in both. The success rate is the share of acks in all endings;
-- `share` is the share of the queue's leases, and changes with those of other consumers.
-- A failure is a nack, or a burial requested by the consumer or caused by its decoder; a burial after the last nack or expiry is
-- already counted there. A consumer without a name is `unknown`.
-- taken: leases within five seconds, the default of burst_dequeue. Spans that two rounds share count as two.
-- stored: all rows of earlier rounds in these hours. round: the last one that changed the row.
with event as (
    select * except (consumer), coalesce(consumer, 'unknown') as consumer,
        kind = 'nacked' or (kind = 'buried' and reason in ('buried', 'undecodable')) as failed,
        timestamp_seconds(floor(unix_seconds(at) / 3600) * 3600) as hour
    from {traced}
    where kind in ('leased', 'acked', 'expired', 'released', 'nacked')
        or (kind = 'buried' and reason in ('buried', 'undecodable'))
), new as (
    select queue_id, consumer, hour, max_by(queue, id) as queue, max(id) as last_id, count_if(kind = 'leased') as leased,
        count_if(kind = 'acked') as acked, count_if(failed) as failed, count_if(kind = 'expired') as expired,
        count_if(kind = 'released') as released
    from event
    group by queue_id, consumer, hour
), old as (
    select * from {stored}
), tallies as (
    select struct(queue_id, consumer, hour) as subject, 'processing' as measure, processing_us as value, 1 as n from event
    union all
    select struct(queue_id, consumer, hour), 'taken', count(*), 1 from event where kind = 'leased'
    group by queue_id, consumer, hour, floor(unix_seconds(at) / 5)
    union all
    select struct(queue_id, consumer, hour), measure, value, n
    from (select * from old left semi join new using (queue_id, consumer, hour))
        lateral view explode(map('processing', processing, 'taken', taken)) as measure, tally
        lateral view explode(tally) as value, n
), sketches as (
    select subject.*, is_rounded, measures from {sketched}
), hours as (
    select queue_id, consumer, hour, if(old.last_id > new.last_id, old.queue, coalesce(new.queue, old.queue)) as queue,
        greatest(new.last_id, old.last_id) as last_id, new.last_id is not null as is_new,
        coalesce(new.leased, 0) + coalesce(old.leased, 0) as leased,
        coalesce(new.acked, 0) + coalesce(old.acked, 0) as acked,
        coalesce(new.failed, 0) + coalesce(old.failed, 0) as failed,
        coalesce(new.expired, 0) + coalesce(old.expired, 0) as expired,
        coalesce(new.released, 0) + coalesce(old.released, 0) as released,
        if(new.last_id is null, old.processing_p50_s, measures['processing'].seconds[0]) as processing_p50_s,
        if(new.last_id is null, old.processing_p95_s, measures['processing'].seconds[1]) as processing_p95_s,
        if(new.last_id is null, old.processing_p99_s, measures['processing'].seconds[2]) as processing_p99_s,
        if(new.last_id is null, old.processing, measures['processing'].tally) as processing,
        if(new.last_id is null, old.taken, measures['taken'].tally) as taken,
        coalesce(old.exact, true) and not coalesce(is_rounded, false) as exact, old.share as share_before, old.round as round_before
    from new
    full join old using (queue_id, consumer, hour)
    left join sketches using (queue_id, consumer, hour)
), shared as (
    select *, acked / nullif(acked + failed + expired, 0) as success_rate,
        leased / nullif(sum(leased) over (partition by queue_id, hour), 0) as share
    from hours
)
select * except (is_new, share_before, round_before),
    if(is_new or not share <=> share_before, bigint(:number), round_before) as round,
    date_from_unix_date(int(floor(unix_seconds(hour) / 86400))) as date
from shared
