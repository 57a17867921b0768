-- The number of live messages of a queue with a limit, counted up to that limit, and how many of these keys are live. The count
-- reads message_order; it is not part of an offer, see `depth.py`.
select q.max_depth,
    (select count(*)::int from (select from tarry.message m where (m.queue + 0) = q.id limit q.max_depth) counted) as depth,
    (select count(*)::int from tarry.message m where m.key = any (%(keys)s::text[]) and m.queue = q.id) as live
from tarry.queue q
where q.name = %(queue)s and q.deleted_at is null
