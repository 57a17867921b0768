-- Mark batches as replaced by a compaction. The number of rows shows whether all of them were still readable.
update tarry.archive_batch
set state = 'replaced', replaced_by = %(batch)s, replaced_at = clock_timestamp()
where batch = any (%(parts)s::bigint[]) and state in ('durable', 'pruned')
returning batch
