-- The queue of this name; if it was deleted, the last one of this name, because its history can still be read.
select id from tarry.queue where name = %(queue)s order by deleted_at desc nulls first limit 1
