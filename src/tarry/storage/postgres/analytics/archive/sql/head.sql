-- The last batch of a lake's chain: the next window begins at its end.
select
-- include: analytics/archive/_batch
from tarry.archive_batch
where lake = %(lake)s and state in ('durable', 'pruned')
order by position desc
limit 1
