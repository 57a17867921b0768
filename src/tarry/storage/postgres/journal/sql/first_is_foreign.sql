-- `is_foreign` for the first event only, on every connect: reading the ranges that event_find has not summarized takes 1 µs per
-- event.
select exists (select from (select e.xid from tarry.event e limit 1) f
    where f.xid >= pg_snapshot_xmax(pg_current_snapshot())) as is_foreign
