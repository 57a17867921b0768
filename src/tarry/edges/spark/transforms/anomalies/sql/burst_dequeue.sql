-- Leases of one consumer in every span of some seconds; a continuing burst is one anomaly. The usual value is that of the
-- consumer's own busy spans before, or of all consumers of the queue while this one is new.
-- A lease adds one at its instant and subtracts one a span later: a running sum, which Spark computes in one pass. A sliding
-- frame is summed again for every row, which takes hours for a million leases of one consumer.
with at_once as (
    select queue_id, consumer, unix_micros(at) as us, count(*) as n, min(id) as id, max_by(queue, id) as queue
    from {events}
    group by all
), steps as (
    select queue_id, consumer, queue, id, inline(array(
        struct(us as moment, n as step), struct(us + :span_us as moment, -n as step)))
    from at_once
), summed as (
    select *, sum(step) over (partition by queue_id, consumer order by moment) as count from steps
), busy as (
    select *, int(coalesce(
        moment - lag(moment) over (partition by queue_id, consumer order by moment) > :span_us, true)) as begins
    from summed
    where step > 0 and count >= :at_least
), numbered as (
    select *, sum(begins) over (partition by queue_id, consumer order by moment) as burst from busy
), bursts as (
    select queue_id, consumer, burst, max_by(queue, id) as queue, min(id) as id, max(count) as observed,
        timestamp_micros(min(moment) - :span_us) as window_from, timestamp_micros(max(moment)) as window_to,
        date_from_unix_date(int(floor(unix_seconds(timestamp_micros(max(moment))) / 86400))) as date
    from numbered
    group by queue_id, consumer, burst
), judged as (
    select /*+ broadcast(own), broadcast(usual) */ bursts.*, coalesce(own.p99, usual.p99) as expected_high
    from bursts
    left join {profiles} own on own.date = bursts.date and own.queue_id = bursts.queue_id and own.measure = 'taken'
        and own.consumer = bursts.consumer and own.n >= :enough
    left join {profiles} usual on usual.date = bursts.date and usual.queue_id = bursts.queue_id and usual.measure = 'taken'
        and usual.consumer is null and usual.n >= :enough
)
select id, queue_id, queue, consumer, window_from, window_to, observed, expected_high,
    observed / coalesce(expected_high, double(:at_least)) as score, :span as span,
    coalesce(text'; up to {expected_high:number} is usual', '') as usually,
    text'In queue {queue}, {consumer:named} took {observed:number} messages within {span} s{usually}. Others may be left without work.'
        as sentence,
    coalesce(text'consumer = {consumer:sql}', 'consumer is null') as whose,
    text'select consumer, date_trunc(''second'', at) as second, count(*) from tarry.journal where queue = {queue:sql} and kind = ''leased'' and {whose} and at >= {window_from:instant} and at <= {window_to:instant} group by 1, 2 order by 2'
        as evidence
from judged
where window_to >= timestamp(:since) and window_from < timestamp(:until) and observed > coalesce(expected_high, 0D)
