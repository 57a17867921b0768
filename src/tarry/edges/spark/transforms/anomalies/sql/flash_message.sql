-- Leased sooner than 99 % of its queue: a consumer may be spinning, or a delay may be wrong.
with leased as (
    select *, lag_us / 1000 as observed, date_from_unix_date(int(floor(unix_seconds(at) / 86400))) as date
    from {events}
    where at >= timestamp(:since) and at < timestamp(:until)
)
select /*+ broadcast(usual) */ id, leased.queue_id, queue, key, leased.consumer, at as window_from, at as window_to, observed,
    usual.p01 / 1000 as expected_low, cast(id as string) as identity,
    text'Message {key} of queue {queue} was taken {observed:ms} after it could be taken, by {leased.consumer:named}; 99 of 100 wait longer than {usual.p01:us}.'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from leased
join {profiles} usual on usual.date = leased.date and usual.queue_id = leased.queue_id and usual.measure = 'lag_us'
    and usual.consumer is null and usual.n >= :enough
where observed < :under_ms and lag_us < usual.p01
