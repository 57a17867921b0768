-- Published zombies whose lease is older than the frames: they end with the next event of their message.
with old as (
    select queue_id, queue, key, consumer, window_from, expected_high
    from {published}
    left anti join {findings} using (queue_id, key, window_from)
), ends as (
    select /*+ broadcast(old) */ old.queue_id, old.key, old.window_from, min(life.at) as came_at
    from {life} life
    join old on old.queue_id = life.queue_id and old.key = life.key and life.at > old.window_from
    group by all
), idle as (
    select *, coalesce(came_at, timestamp(:known_until)) as window_to,
        (unix_micros(window_to) - unix_micros(window_from)) / 1e6 as observed
    from old
    left join ends using (queue_id, key, window_from)
)
select queue_id, queue, key, consumer, window_from, window_to, observed, expected_high,
    observed / nullif(expected_high, 0) as score,
    if(came_at is null, ' so far. Is any consumer running?', '.') as ended,
    text'The lease of message {key} of queue {queue} (of {consumer:named}) ran out, and no consumer leased it for {observed:s}{ended}'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from idle
where window_to >= timestamp(:since) and window_from < timestamp(:until)
