-- Reported even for queues without a journal: this event is always written.
with cleared as (
    select *, bigint(get_json_object(detail, '$.count')) as observed, at - interval 1 minute as since,
        at + interval 1 minute as until
    from {events}
    where at >= timestamp(:since) and at < timestamp(:until)
)
select id, queue_id, queue, key, consumer, at as window_from, at as window_to, observed, cast(id as string) as identity,
    text'Queue {queue} was cleared: {observed:number} live messages are gone.' as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and at >= {since:instant} and at <= {until:instant} and kind in (''queue_purged'', ''dropped'') order by id'
        as evidence
from cleared
where observed >= :at_least
