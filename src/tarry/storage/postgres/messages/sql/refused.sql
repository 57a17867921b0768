-- Write down that somebody tried to settle a message with a token that is not its lease: work was done twice, or a
-- consumer is slower than its lease. Says nothing about the message itself.
insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, detail)
select 'refused', coalesce(%(now)s::timestamptz, clock_timestamp()), q.id, m.key, m.version, m.attempt, m.priority,
    m.due_at, jsonb_build_object('verb', %(verb)s::text)
from tarry.queue q join tarry.message m on m.queue = q.id and m.key = any (%(keys)s::text[])
where q.name = %(queue)s and q.deleted_at is null and q.journal <> 'off'
