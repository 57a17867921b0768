-- Whether the journal has events of transactions that this server has not started: they were restored from a dump of another
-- server. Readers would not see them now, and would take them for new events later. Relies on event_find, after
-- prefer_bitmap_scans.
select exists (select from tarry.event e
    where e.xid::text::bigint >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint) as is_foreign
