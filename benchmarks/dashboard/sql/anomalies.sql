-- Open anomalies of all severities.
insert into tarry.anomaly (fingerprint, detector, detector_version, severity, queue_id, queue, window_from, window_to, sentence,
    observed, expected_high, score, evidence, run_id, fresh_at)
select n::text, 'late_delivery', 1, (array['info', 'warning', 'critical'])[1 + n %% 3], q.id, q.name, rows.at,
    rows.at + interval '3 minutes',
    'Queue ' || q.name || ': 42.0 s was the delivery lag (p95), where up to 9.0 s is usual.', 42, 9, 7.8, 'select 1', 1, now()
from (select n, now() - n * interval '5 minutes' as at from generate_series(1, %(anomalies)s) n) rows
join tarry.queue q on q.id = 1 + n %% %(queues)s
