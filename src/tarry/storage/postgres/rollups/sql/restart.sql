-- Begin anew at the current snapshot: the head is of another server, from which this database was restored.
update tarry.rollup_head set snapshot = pg_current_snapshot(), at = clock_timestamp()
