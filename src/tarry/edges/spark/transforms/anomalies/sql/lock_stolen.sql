-- A settle with an outdated token: it changed nothing, but the work was done twice.
select id, queue_id, queue, key, consumer, at as window_from, at as window_to, cast(id as string) as identity,
    coalesce(get_json_object(detail, '$.verb'), 'settle') as verb,
    text'A consumer tried to {verb} message {key} of queue {queue} with a lease that was lost. Nothing was changed, but the work may have been done twice: the lease is shorter than the work, or a consumer hung.'
        as sentence,
    text'select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id' as evidence
from {events}
where at >= timestamp(:since) and at < timestamp(:until)
