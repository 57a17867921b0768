-- Every lake that pruning waits for, and the time of its last archived batch; null if there is none.
select lake, max(durable_at) filter (where kind = 'archive') as archived_at
from tarry.archive_batch where state <> 'abandoned' group by lake order by lake
