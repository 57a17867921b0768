-- The same of the first event only, for every connect: reading what event_find has not summarised yet takes 1 µs per
-- event.
select exists (select from (select e.xid from tarry.event e limit 1) f
    where f.xid >= pg_snapshot_xmax(pg_current_snapshot())) as is_foreign
