-- The depth of each queue at the start of a day: the sum of the changes of all days before it.
select queue_id, sum(net)::bigint as depth, sum(dead_net)::bigint as dead
from tarry.queue_day
where lake = %(lake)s and day < %(day)s
group by queue_id
order by queue_id
