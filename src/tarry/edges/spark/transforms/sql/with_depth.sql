-- Live and dead messages at the end of each minute, computed backwards from `levels`, the state after the last minute: a late
-- event changes every minute after its own. round: the last round that changed the row.
with counted as (
    select /*+ broadcast(level) */ minutes.* except (depth, dead), minutes.depth as depth_before, minutes.dead as dead_before,
        coalesce(level.depth, 0) - coalesce(sum(net) over later, 0) as depth,
        coalesce(level.dead, 0) - coalesce(sum(dead_net) over later, 0) as dead
    from {minutes} minutes
    left join {levels} level on level.queue_id = minutes.queue_id
    window later as (partition by minutes.queue_id order by minute desc rows between unbounded preceding and 1 preceding)
)
select * except (is_new, round, depth_before, dead_before),
    if(is_new or depth <> depth_before or dead <> dead_before, bigint(:number), round) as round
from counted
