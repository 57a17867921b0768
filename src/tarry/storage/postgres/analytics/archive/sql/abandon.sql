-- Abandon the planned batch of a dead run. Its number is never reused, so late writes of its executors are ignored.
update tarry.archive_batch set state = 'abandoned'
where lake = %(lake)s and state = 'planned'
returning batch, lake, kind, place, from_edge, to_edge, system_id, state, files, rows, checksum, min_at, max_at, run
