-- Events of a round per queue, the hour of the first one, and the change in live and dead messages.
select queue_id, count(*) as events, bigint(floor(min(unix_seconds(at)) / 3600) * 3600) as first_hour, sum(net) as net,
    sum(dead_net) as dead_net
from {traced}
group by queue_id
