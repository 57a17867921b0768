-- Record that the files of these batches are deleted.
update tarry.archive_batch set cleared_at = clock_timestamp()
where batch = any (%(batches)s::bigint[])
