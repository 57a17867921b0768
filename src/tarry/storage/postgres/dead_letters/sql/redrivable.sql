-- The dead letters that a redrive without versions moves: the oldest whose key is free. Chosen in a separate statement before
-- they are moved, because a response can get lost: a repeated redrive must move the same letters, or none.
with q as materialized (
    select id from tarry.queue where name = %(queue)s and deleted_at is null
), candidate as (
    select distinct on (d.key) d.version, d.died_at
    from tarry.dead_letter d
    where d.queue = (select id from q)
      and not exists (select from tarry.message m where m.key = d.key and m.queue = d.queue)
    order by d.key, d.died_at, d.version
)
select array(select version from candidate order by died_at, version limit %(limit)s::int) as versions from q
