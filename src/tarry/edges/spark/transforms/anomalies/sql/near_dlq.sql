-- After a nack, by the message's max_attempts; older nacks without it are judged by the queue's limit.
with nacked as (
    select /*+ broadcast(queue) */ event.*,
        coalesce(int(get_json_object(detail, '$.max_attempts')), queue.max_attempts) as most
    from {events} event
    join {queues} queue on queue.queue_id = event.queue_id
    where at >= timestamp(:since) and at < timestamp(:until)
)
select id, queue_id, queue, key, consumer, at as window_from, at as window_to, most - attempt as observed,
    cast(id as string) as identity, {because} as because,
    text'Message {key} of queue {queue} failed at attempt {attempt} of {most}{because}: {observed} more and it is a dead letter.'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from nacked
where most - attempt > 0 and most - attempt <= :attempts_left
