-- Minutes of queues, newest first, with the current name of the queue; keyset pagination.
select coalesce(q.name, m.queue) as queue, m.minute, m.offered, m.updated, m.redriven, m.leased, m.acked, m.nacked,
    m.released, m.expired, m.buried, m.dropped, m.discarded, m.refused, m.bytes_offered, m.depth, m.dead, m.exact,
    m.run_id, m.fresh_at, m.queue_id,
    case when m.lag_p50_s is not null then jsonb_build_object(
        'p50', m.lag_p50_s, 'p95', m.lag_p95_s, 'p99', m.lag_p99_s) end as lag,
    case when m.wait_p50_s is not null then jsonb_build_object(
        'p50', m.wait_p50_s, 'p95', m.wait_p95_s, 'p99', m.wait_p99_s) end as wait,
    case when m.processing_p50_s is not null then jsonb_build_object(
        'p50', m.processing_p50_s, 'p95', m.processing_p95_s, 'p99', m.processing_p99_s) end as processing
from tarry.metric_minute m left join tarry.queue q on q.id = m.queue_id
where
  -- include: analytics/_visible
  and m.minute >= coalesce(%(since)s::timestamptz, '-infinity')
  and m.minute < coalesce(%(until)s::timestamptz, 'infinity')
  and (%(after_at)s::timestamptz is null or m.minute < %(after_at)s
       or (m.minute = %(after_at)s and m.queue_id > %(after_id)s::bigint))
order by m.minute desc, m.queue_id
limit %(limit)s::int
