-- Remove a worker that has stopped.
delete from tarry.worker where id = %(id)s::text
