-- Journal that a settle with a stale token was refused: work was done twice, or a consumer is slower than its lease. The message
-- does not change.
insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, detail)
select 'refused', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, m.key, m.version, m.attempt, m.priority,
    m.due_at, jsonb_build_object('verb', %(verb)s::text)
from tarry.queue q join tarry.message m on m.queue = q.id and m.key = any (%(keys)s::text[])
where q.name = %(queue)s and q.deleted_at is null and q.journal <> 'off'
