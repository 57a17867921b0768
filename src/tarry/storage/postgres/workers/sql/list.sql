-- Workers with a recent report, one row each.
select id, consumer, host, pid, version, queues, concurrency, running, extensions, is_stopping, release, skew, started_at, seen_at, drain_at
from tarry.worker
where seen_at >= coalesce(%(now)s::timestamptz, clock_timestamp()) - %(kept_for)s::interval
order by consumer, id
