-- Hours of consumers, newest first, with the current name of the queue; keyset pagination.
select coalesce(q.name, m.queue) as queue, m.hour, m.consumer, m.leased, m.acked, m.failed, m.expired, m.released,
    m.success_rate, m.share, m.exact, m.run_id, m.fresh_at, m.queue_id,
    case when m.processing_p50_s is not null then jsonb_build_object(
        'p50', m.processing_p50_s, 'p95', m.processing_p95_s, 'p99', m.processing_p99_s) end as processing
from tarry.consumer_hour m left join tarry.queue q on q.id = m.queue_id
where
  -- include: analytics/_visible
  and m.hour >= coalesce(%(since)s::timestamptz, '-infinity')
  and m.hour < coalesce(%(until)s::timestamptz, 'infinity')
  and (%(consumer)s::text is null or m.consumer = %(consumer)s)
  and (%(after_at)s::timestamptz is null or m.hour < %(after_at)s or (m.hour = %(after_at)s
       and (m.queue_id, m.consumer collate "C") > (%(after_id)s::bigint, %(after_text)s::text collate "C")))
order by m.hour desc, m.queue_id, m.consumer collate "C"
limit %(limit)s::int
