-- Begin anew at the current snapshot: the head is of another server, from which this database was restored.
-- Transactions of that server do not find events of this one.
with located as (
    update tarry.rollup set last_xid = null where last_xid is not null
)
update tarry.rollup_head set snapshot = pg_current_snapshot(), at = clock_timestamp()
