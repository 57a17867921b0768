-- Live and dead messages of the queues that a round has changed, after their last minute.
select queue_id, max_by(depth, minute) as depth, max_by(dead, minute) as dead
from {minutes}
group by queue_id
having max(round) >= :number
