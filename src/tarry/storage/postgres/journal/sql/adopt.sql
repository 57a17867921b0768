-- Assign a journal that was restored from a dump to this server: all its events count as committed now, in the order of
-- their ids, all or none. Relies on event_find, after prefer_bitmap_scans.
with here as materialized (
    select pg_snapshot_xmax(pg_current_snapshot()) as next
), events as (
    update tarry.event e set xid = pg_current_xact_id()
    where e.xid::text::bigint >= (select next::text::bigint from here)
    returning 1
), located as (
    update tarry.rollup set last_xid = null where last_xid is not null
), pruned as (
    update tarry.archive_day set pruned_xid = pg_current_xact_id() where pruned_xid >= (select next from here)
)
select count(*) as adopted from events
