-- Minutes of one queue or all, the newest first, under the name that the queue has now.
select coalesce(q.name, m.queue), m.minute, m.offered, m.updated, m.redriven, m.leased, m.acked, m.nacked, m.released,
    m.expired, m.buried, m.dropped, m.purged, m.refused, m.bytes_offered, m.depth, m.dead, m.lag_p50_s,
    m.lag_p95_s, m.lag_p99_s, m.wait_p50_s, m.wait_p95_s, m.wait_p99_s, m.processing_p50_s, m.processing_p95_s,
    m.processing_p99_s, m.exact, m.run_id, m.fresh_at
from tarry.metric_minute m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
  and m.minute >= %(since)s and m.minute < %(until)s
order by m.minute desc, m.queue_id
limit %(limit)s::int
