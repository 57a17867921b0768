-- From the lease to the ack or nack: a slow failure counts too. A queue whose usual time is above the absolute limit is
-- judged by its own times only.
with settled as (
    select *, (unix_micros(at) - unix_micros(leased_at)) / 1e6 as observed,
        date_from_unix_date(int(floor(unix_seconds(at) / 86400))) as date
    from {events}
    where at >= timestamp(:since) and at < timestamp(:until)
), limited as (
    select /*+ broadcast(usual) */ settled.*, usual.p99 / 1e6 as p99_s,
        case when p99_s is null then double(:over_s) when p99_s > :over_s then p99_s * :times_usual
            else least(double(:over_s), p99_s * :times_usual) end as expected_high
    from settled
    left join {profiles} usual on usual.date = settled.date and usual.queue_id = settled.queue_id
        and usual.measure = 'processing_us' and usual.consumer is null and usual.n >= :enough
)
select id, queue_id, queue, key, consumer, leased_at as window_from, at as window_to, observed, expected_high,
    observed / nullif(expected_high, 0) as score, cast(id as string) as identity,
    text'Message {key} of queue {queue} was held for {observed:s} by {consumer:named} until it was {kind}; up to {expected_high:s} is usual.'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from limited
where observed > expected_high
