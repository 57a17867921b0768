-- Dead letters of a queue, the newest first. Relies on dead_letter_order.
with q as materialized (
    select id, name from tarry.queue where name = %(queue)s and deleted_at is null
)
select q.name, d.key, d.payload, d.version, d.attempt, d.priority, d.due_at, d.died_at, d.reason, d.error, d.type,
    d.headers, d.content_type
from q left join lateral (
    select * from tarry.dead_letter where queue = q.id order by died_at desc, version desc limit %(limit)s::int
) d on true
order by d.died_at desc, d.version desc
