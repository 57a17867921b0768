-- These batches give way to a compaction. The number says whether all of them were still there to do so.
update tarry.archive_batch
set state = 'replaced', replaced_by = %(batch)s, replaced_at = clock_timestamp()
where batch = any (%(parts)s::bigint[]) and state in ('durable', 'pruned')
returning batch
