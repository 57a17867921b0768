-- Live and dead messages at the end of each minute: the running sum of the changes.
-- baseline: the depth of each queue before the first of these minutes.
select /*+ broadcast(before) */ minutes.*,
    coalesce(before.depth, 0) + sum(net) over so_far as depth,
    coalesce(before.dead, 0) + sum(dead_net) over so_far as dead
from {metrics} minutes
left join {baseline} before on before.queue_id = minutes.queue_id
window so_far as (partition by minutes.queue_id order by minute rows between unbounded preceding and current row)
