-- Forget old entries of the ledger, unless their message still lives. What was decided up to the cursor of a schedule is
-- never decided again, so nothing depends on them.
with old as materialized (
    select t.ctid as place from tarry.tick t
    where t.decided_at < %(before)s and coalesce(t.until, t.tick) < %(before)s
      and not exists (select from tarry.message m where m.key = t.key and m.queue = t.queue)
    limit %(limit)s::int
), gone as (
    delete from tarry.tick t using old o where t.ctid = o.place returning 1
)
select count(*) from gone
