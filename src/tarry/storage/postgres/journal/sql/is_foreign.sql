-- Whether the journal has events of transactions that this server has yet to begin: they came with a dump from another one.
-- Readers would not see them now, and would take them for new ones later. Relies on event_find, after by_bitmaps.
select exists (select from tarry.event e
    where e.xid::text::bigint >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
