-- Throughput of each queue in a busy minute: the 95th percentile of acks over the minutes with acks. It is the observed, not the
-- maximum throughput: consumers that were never saturated may be faster, see calibrated.sql. The current minute is incomplete.
select queue_id, percentile(acked, 0.95) as capacity
from {metrics}
where acked > 0 and minute >= timestamp(:since) and minute < timestamp(:until)
group by queue_id
