-- Single and bulk offers, and updates; the size is that of the stored bytes. A queue whose usual size is above the absolute
-- limit is judged by its own sizes only; otherwise it would be reported all day.
with offers as (
    select *, date_from_unix_date(int(floor(unix_seconds(at) / 86400))) as date
    from {events}
    where at >= timestamp(:since) and at < timestamp(:until)
), limited as (
    select /*+ broadcast(usual) */ offers.*,
        case when usual.p999 is null then double(:over_bytes) when usual.p999 > :over_bytes then usual.p999 * :times_usual
            else least(double(:over_bytes), usual.p999 * :times_usual) end as expected_high
    from offers
    left join {profiles} usual on usual.date = offers.date and usual.queue_id = offers.queue_id and usual.measure = 'size'
        and usual.consumer is null and usual.n >= :enough
)
select id, queue_id, queue, key, consumer, at as window_from, at as window_to, size as observed, expected_high,
    size / nullif(expected_high, 0) as score, cast(id as string) as identity,
    text'Message {key} of queue {queue} has {size:number} bytes of payload; more than {expected_high:number} is unusual here.'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from limited
where size > expected_high
