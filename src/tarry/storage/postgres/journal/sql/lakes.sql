-- Every lake that pruning waits for, and when it last archived something; null: never.
select lake, max(durable_at) filter (where kind = 'archive') as archived_at
from tarry.archive_batch where state <> 'abandoned' group by lake order by lake
