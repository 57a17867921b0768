-- One queue, or all of them by name.
select
    -- include: queues/_queue
from tarry.queue
where deleted_at is null and (%(name)s::text is null or name = %(name)s)
order by name collate "C"
