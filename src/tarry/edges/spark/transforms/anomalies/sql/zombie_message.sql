-- An expired lease whose message was not leased again for twice the lease's length, or 8 h: consumers may be down. Found
-- while the message waits, and also afterwards, when it was leased late. A touch, an ack or any other event of the holder
-- precedes the end of the lease; only these events follow it. An expiry is recorded by the consumer that leases the message
-- next, or earlier by a sweeper, which leases nothing. The identity is the same before and after the message was leased again.
with lost as (
    select id, queue_id, queue, key, consumer, at as leased_at, lease_until, cast(null as timestamp) as next_at from {idle}
    union all
    select last_held.id, queue_id, queue, key, last_held.consumer, last_held.at, last_held.lease_until, at
    from {events}
    where kind <> 'expired' and before.kind in ('leased', 'touched', 'expired') and last_held is not null
), held as (
    select *, coalesce(next_at, timestamp(:known_until)) as taken_at, unix_micros(lease_until) - unix_micros(leased_at) as length_us,
        unix_micros(taken_at) - unix_micros(lease_until) as over_us,
        least(length_us * double(:times_lease), :at_most_s * 1e6) as most_us
    from lost
)
select id, queue_id, queue, key, consumer, lease_until as window_from, taken_at as window_to, over_us / 1e6 as observed,
    most_us / 1e6 as expected_high, observed / nullif(expected_high, 0) as score,
    concat_ws('|', key, coalesce(consumer, ''), cast(unix_micros(lease_until) as string)) as identity,
    if(next_at is null, 'and no consumer has leased it since', 'before a consumer leased it') as ended,
    text'The lease of message {key} of queue {queue} ({length_us:us}, of {consumer:named}) ran out, {ended}: {over_us:us} so far. Is any consumer running?'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from held
where over_us > most_us and taken_at >= timestamp(:since) and lease_until < timestamp(:until)
