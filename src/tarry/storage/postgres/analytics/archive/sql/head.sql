-- The last batch of a lake's chain: the next window begins at its end.
select batch, lake, kind, place, from_edge, to_edge, system_id, state, files, rows, checksum, min_at, max_at, run
from tarry.archive_batch
where lake = %(lake)s and state in ('durable', 'pruned')
order by place desc
limit 1
