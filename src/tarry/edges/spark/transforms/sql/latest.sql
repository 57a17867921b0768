-- The newest row per version: a dead version may have been redriven since.
select * except (rank)
from (select *, row_number() over (partition by queue_id, version order by last_id desc) as rank from {versions})
where rank = 1
