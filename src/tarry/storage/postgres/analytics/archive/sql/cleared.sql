-- Record that the files of these batches are deleted. Their names are not kept: the manifest grows with the lake, not with
-- the number of rounds.
update tarry.archive_batch set cleared_at = clock_timestamp(), files = '[]'
where batch = any (%(batches)s::bigint[])
