-- Batches that are no longer part of their lake and that no reader can still be reading.
select
-- include: analytics/archive/_batch
from tarry.archive_batch
where lake = %(lake)s and cleared_at is null
  and (state = 'abandoned' or state = 'replaced' and replaced_at < clock_timestamp() - %(grace)s::interval)
order by batch
