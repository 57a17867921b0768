-- Anomalies, latest first, with the current name of the queue; filter and keyset pagination as in pipeline_metrics.
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
  and (%(names)s::text[] is null or coalesce(q.name, a.queue) = any (%(names)s::text[])
       or exists (select from unnest(%(beginnings)s::text[]) b where starts_with(coalesce(q.name, a.queue), b)))
  and (%(id)s::bigint is null or a.id = %(id)s)
  and (%(after_at)s::timestamptz is null or (a.window_to, a.id) < (%(after_at)s, %(after_id)s::bigint))
order by a.window_to desc, a.id desc
limit %(limit)s::int
