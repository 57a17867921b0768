-- Restart at the current snapshot: the head belongs to another server, from which this database was restored, and its
-- transaction ids do not match the events of this server.
with located as (
    update tarry.rollup set last_xid = null where last_xid is not null
)
update tarry.rollup_head set snapshot = pg_current_snapshot(), at = clock_timestamp()
