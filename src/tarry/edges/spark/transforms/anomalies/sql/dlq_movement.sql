-- A message died: by its last nack, by the expiry of its last lease, or because a consumer buried it.
select id, queue_id, queue, key, consumer, at as window_from, at as window_to, attempt as observed, cast(id as string) as identity,
    case get_json_object(detail, '$.reason') when 'exhausted' then text'after {attempt} attempts'
        when 'undecodable' then 'because its payload could not be read' else 'because its consumer gave up on it' end as why,
    {because} as because,
    text'Message {key} of queue {queue} became a dead letter {why}{because}.' as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from {events}
where at >= timestamp(:since) and at < timestamp(:until)
