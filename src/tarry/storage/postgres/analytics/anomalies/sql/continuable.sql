-- Published anomalies of these detectors that began before `since` and lasted until `frames_from`, where a run's
-- frames begin: the run sees them in part or not at all, and continues them under their identity.
select detector, queue_id, queue, key, consumer, window_from, window_to, observed, expected_low, expected_high
from tarry.anomaly
where detector = any (%(detectors)s::text[])
  and window_to >= %(frames_from)s::timestamptz and window_from < %(since)s::timestamptz
order by id
