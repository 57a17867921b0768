-- What a queue is called now that was once called so: the one that was renamed last.
select name from tarry.queue
where %(name)s::text = any (former_names) and deleted_at is null
order by updated_at desc
limit 1
