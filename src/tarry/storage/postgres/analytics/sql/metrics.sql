-- Minutes of one queue or all, newest first, with the current name of the queue. Optionally restricted to names and
-- name prefixes, and continued after the last row of the previous page (keyset pagination).
select coalesce(q.name, m.queue), m.minute, m.offered, m.updated, m.redriven, m.leased, m.acked, m.nacked, m.released,
    m.expired, m.buried, m.dropped, m.purged, m.refused, m.bytes_offered, m.depth, m.dead, m.lag_p50_s,
    m.lag_p95_s, m.lag_p99_s, m.wait_p50_s, m.wait_p95_s, m.wait_p99_s, m.processing_p50_s, m.processing_p95_s,
    m.processing_p99_s, m.exact, m.run_id, m.fresh_at, m.queue_id
from tarry.metric_minute m left join tarry.queue q on q.id = m.queue_id
where (%(queue_id)s::int is null or m.queue_id = %(queue_id)s)
  and m.minute >= coalesce(%(since)s::timestamptz, '-infinity')
  and m.minute < coalesce(%(until)s::timestamptz, 'infinity')
  and (%(names)s::text[] is null or coalesce(q.name, m.queue) = any (%(names)s::text[])
       or exists (select from unnest(%(beginnings)s::text[]) b where starts_with(coalesce(q.name, m.queue), b)))
  and (%(after_at)s::timestamptz is null or m.minute < %(after_at)s
       or (m.minute = %(after_at)s and m.queue_id > %(after_id)s::bigint))
order by m.minute desc, m.queue_id
limit %(limit)s::int
