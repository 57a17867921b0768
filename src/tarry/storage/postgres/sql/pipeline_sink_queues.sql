-- The queues of a write, by name, with what the merge must know of them.
select name, id, journal::text from tarry.queue where name = any (%(names)s::text[]) and deleted_at is null
