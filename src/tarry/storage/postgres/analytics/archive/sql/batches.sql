-- The batches of a lake in these states, in the order of the chain. One statement, so that a compaction is seen either
-- with its parts replaced or not at all.
select batch, lake, kind, place, from_edge, to_edge, system_id, state, files, rows, checksum, min_at, max_at, run
from tarry.archive_batch
where lake = %(lake)s and state = any (%(states)s::text[])
order by place, batch
