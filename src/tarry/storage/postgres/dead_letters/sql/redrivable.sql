-- Which dead letters a redrive without names would take: the oldest that could live. Chosen before they are moved, and by a
-- statement of its own, because an answer can get lost: a redrive that is said again must move the same ones, or none.
with q as materialized (
    select id from tarry.queue where name = %(queue)s and deleted_at is null
), candidate as (
    select distinct on (d.key) d.version, d.died_at
    from tarry.dead_letter d
    where d.queue = (select id from q)
      and not exists (select from tarry.message m where m.key = d.key and m.queue = d.queue)
    order by d.key, d.died_at, d.version
)
select array(select version from candidate order by died_at, version limit %(limit)s::int) from q
