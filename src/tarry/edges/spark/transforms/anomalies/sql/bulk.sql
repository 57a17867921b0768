-- Many messages in one operation. A purge of the queue is reported by queue_cleared instead of bulk_delete. In queues with
-- large group commits, only larger ones are reported.
with judged as (
    select * from {events} where at >= timestamp(:since) and at < timestamp(:until)
), counted as (
    select * from {operations}
    left anti join (select queue_id, xid from {cleared} where at >= timestamp(:since) and at < timestamp(:until))
        using (queue_id, xid)
)
select /*+ broadcast(usual) */ id, counted.queue_id, queue, window_from, window_to, count as observed, usual.p99 as expected_high,
    cast(id as string) as identity, :happened as happened,
    text'{count:number} messages {happened} {queue} in one operation.' as sentence,
    text'select * from tarry.journal where xid::text::bigint = {xid} and queue = {queue:sql} order by id' as evidence
from counted
left join {profiles} usual on usual.date = counted.date and usual.queue_id = counted.queue_id and usual.measure = :measure
    and usual.consumer is null and usual.n >= :enough
where count >= :at_least and count > coalesce(usual.p99, 0D)
