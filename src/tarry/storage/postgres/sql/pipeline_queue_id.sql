-- The queue of this name; where it was deleted, the last one that had it, because its history can still be read.
select id from tarry.queue where name = %(queue)s order by deleted_at desc nulls first limit 1
