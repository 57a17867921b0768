-- Whether a queue has neither live messages nor dead letters.
select not exists (select from tarry.message m where (m.queue + 0) = q.id)
    and not exists (select from tarry.dead_letter d where d.queue = q.id) as is_empty
from tarry.queue q
where q.name = %(name)s and q.deleted_at is null
