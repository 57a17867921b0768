-- Record the outcome of a write as committed, in the transaction of the merge.
update tarry.sink_write
set state = 'committed', committed_at = clock_timestamp(), rows = %(rows)s, created = %(created)s, updated = %(updated)s,
    ignored = %(ignored)s, superseded = %(superseded)s, stream = %(stream)s, batch = %(batch)s
where id = %(id)s
returning
-- include: analytics/sink/_write
