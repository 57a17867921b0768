-- The messages among these that another transaction has locked, which SKIP LOCKED skips. A key that another transaction has
-- created and not committed is not visible. Relies on message_key.
with q as materialized (
    select id from tarry.queue where name = %(queue)s and deleted_at is null
), free as materialized (
    select m.key from tarry.message m
    where m.key = any (%(keys)s::text[]) and m.queue = (select id from q)
    for update skip locked
)
select m.key from tarry.message m
where m.key = any (%(keys)s::text[]) and m.queue = (select id from q)
  and m.key <> all (array(select key from free))
