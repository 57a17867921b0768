-- A transaction with an event, usually the last one, from the newest hours of the rollups; null if nothing was rolled up. Relies
-- on the primary key of rollup.
select max(last_xid) as xid from (
    select last_xid from tarry.rollup where width = 3600 and queue = 0 order by start_at desc limit 2
) newest
