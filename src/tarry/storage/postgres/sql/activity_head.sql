-- Behind the last transaction that can be seen.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint
