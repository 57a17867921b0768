-- The end of the visible transactions.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xid
