-- Where each queue stood when a day began: all that came minus all that went, on all days before it.
select queue_id, sum(net)::bigint, sum(dead_net)::bigint
from tarry.queue_day
where lake = %(lake)s and day < %(day)s
group by queue_id
order by queue_id
