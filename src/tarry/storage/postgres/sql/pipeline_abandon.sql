-- A planned batch whose run has died: its number is never used again, so whatever its executors still write is ignored.
update tarry.archive_batch set state = 'abandoned'
where lake = %(lake)s and state = 'planned'
returning batch, lake, kind, place, from_edge, to_edge, system_id, state, files, rows, checksum, min_at, max_at, run
