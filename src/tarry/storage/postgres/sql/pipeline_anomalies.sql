-- Anomalies, the latest first, under the name that the queue has now.
select a.id, a.detector, a.detector_version, a.severity, coalesce(q.name, a.queue), a.key, a.consumer, a.window_from,
    a.window_to, a.sentence, a.observed, a.expected_low, a.expected_high, a.score, a.evidence, a.fingerprint, a.raised_at,
    a.acknowledged_at, a.acknowledged_by, a.note, a.run_id, a.fresh_at
from tarry.anomaly a left join tarry.queue q on q.id = a.queue_id
where (%(queue_id)s::int is null or a.queue_id = %(queue_id)s)
  and (%(detector)s::text is null or a.detector = %(detector)s)
  and (%(severity)s::text is null or a.severity = %(severity)s)
  and a.window_to >= coalesce(%(since)s::timestamptz, '-infinity')
  and a.window_from < coalesce(%(until)s::timestamptz, 'infinity')
  and (%(acknowledged)s::boolean is null or (a.acknowledged_at is not null) = %(acknowledged)s)
order by a.window_to desc, a.id desc
limit %(limit)s::int
