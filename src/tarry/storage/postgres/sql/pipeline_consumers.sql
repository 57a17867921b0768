-- Hours of the consumers of one queue or all, the newest first.
select coalesce(q.name, m.queue), m.hour, m.consumer, m.leased, m.acked, m.failed, m.expired, m.released,
    m.success_rate, m.share, m.processing_p50_s, m.processing_p95_s, m.processing_p99_s, m.exact, m.run_id,
    m.fresh_at
from tarry.consumer_hour m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
  and m.hour >= %(since)s and m.hour < %(until)s
order by m.hour desc, m.queue_id, m.consumer collate "C"
limit %(limit)s::int
