-- Anomalies, latest first, with the current name of the queue; keyset pagination.
select m.id, m.detector, m.detector_version, m.severity, coalesce(q.name, m.queue) as queue, m.key, m.consumer,
    m.window_from, m.window_to, m.sentence, m.observed, m.expected_low, m.expected_high, m.score, m.evidence,
    m.fingerprint, m.raised_at, m.acknowledged_at, m.acknowledged_by, m.note, m.is_false_positive, m.run_id, m.fresh_at
from tarry.anomaly m left join tarry.queue q on q.id = m.queue_id
where
  -- include: analytics/_visible
  and (%(detector)s::text is null or m.detector = %(detector)s)
  and (%(severity)s::text is null or m.severity = %(severity)s)
  and m.window_to >= coalesce(%(since)s::timestamptz, '-infinity')
  and m.window_from < coalesce(%(until)s::timestamptz, 'infinity')
  and (%(acknowledged)s::boolean is null or (m.acknowledged_at is not null) = %(acknowledged)s)
  and (%(id)s::bigint is null or m.id = %(id)s)
  and (%(after_at)s::timestamptz is null or (m.window_to, m.id) < (%(after_at)s, %(after_id)s::bigint))
order by m.window_to desc, m.id desc
limit %(limit)s::int
