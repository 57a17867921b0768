-- The current name of the queue that had this name before; of several, the one that was renamed last.
select name from tarry.queue
where %(name)s::text = any (former_names) and deleted_at is null
order by updated_at desc
limit 1
