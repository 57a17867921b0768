-- The queue of this name; if it was deleted, the last one of this name, because its history can still be read. Else the one
-- that had this name before it was renamed.
select id from tarry.queue where name = %(queue)s or %(queue)s = any (former_names)
order by name = %(queue)s desc, deleted_at desc nulls first limit 1
