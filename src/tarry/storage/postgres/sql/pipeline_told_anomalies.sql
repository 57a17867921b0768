-- What these detectors told of that began before `since` and reached `reach`, where a run's frames begin: a run sees it in
-- part or not at all, and goes on with it under its own name.
select detector, queue_id, queue, key, consumer, window_from, window_to, observed, expected_low, expected_high
from tarry.anomaly
where detector = any (%(detectors)s::text[])
  and window_to >= %(reach)s::timestamptz and window_from < %(since)s::timestamptz
order by id
