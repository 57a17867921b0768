-- The queues of a write by name, with the properties that the merge needs.
select name, id, journal::text as journal from tarry.queue where name = any (%(names)s::text[]) and deleted_at is null
