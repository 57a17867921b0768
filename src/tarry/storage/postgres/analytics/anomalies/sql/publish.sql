-- Publish the anomalies that a run found. An anomaly found again is updated and keeps its id and acknowledgement. A new one
-- is not raised if a mute is in force now or was at its time, or if a false positive of the last 90 days has the same
-- detector, queue and consumer and an equal or higher score (for detectors without scores: the same key). An anomaly that the
-- same detectors no longer find in the same time range is withdrawn, unless it is acknowledged or began before that range, in
-- which it was only partly visible. Returns the four counts.
with given as materialized (
    select distinct on (fingerprint) r.* from json_populate_recordset(null::tarry.anomaly, %(rows)s::json) r
    order by fingerprint
), silenced as materialized (
    select g.fingerprint from given g
    where not exists (select from tarry.anomaly a where a.fingerprint = g.fingerprint)
      and (exists (
        select from tarry.anomaly_mute m
        where coalesce(m.detector, g.detector) = g.detector and coalesce(m.queue_id, g.queue_id) = g.queue_id
          and g.window_from < coalesce(m.until, 'infinity')
          and (g.window_to >= m.muted_at or coalesce(m.until, 'infinity') > clock_timestamp()))
      or exists (
        select from tarry.anomaly f
        where f.is_false_positive and f.detector = g.detector and f.queue_id = g.queue_id
          and f.consumer is not distinct from g.consumer and f.window_to > g.window_from - interval '90 days'
          and (g.score <= f.score or (g.score is null and g.key = f.key))))
), put as (
    insert into tarry.anomaly as a (fingerprint, detector, detector_version, severity, queue_id, queue, key, consumer,
        window_from, window_to, sentence, observed, expected_low, expected_high, score, evidence, run_id, fresh_at)
    select g.fingerprint, g.detector, g.detector_version, g.severity, g.queue_id, g.queue, g.key, g.consumer,
        g.window_from, g.window_to, g.sentence, g.observed, g.expected_low, g.expected_high, g.score,
        regexp_replace(g.evidence, ' from \w+\.journal where ', ' from tarry.journal where '),  -- the chosen schema
        %(run_id)s::bigint, clock_timestamp()
    from given g
    where g.fingerprint not in (select fingerprint from silenced)
    order by g.fingerprint
    on conflict (fingerprint) do update
    set (detector_version, severity, queue, window_from, window_to, sentence, observed, expected_low, expected_high,
         score, evidence, run_id, fresh_at)
        = (excluded.detector_version, excluded.severity, excluded.queue, excluded.window_from, excluded.window_to,
           excluded.sentence, excluded.observed, excluded.expected_low, excluded.expected_high, excluded.score,
           excluded.evidence, excluded.run_id, excluded.fresh_at)
    where (a.detector_version, a.severity, a.window_from, a.window_to, a.sentence, a.observed, a.expected_low,
           a.expected_high, a.score)
        is distinct from (excluded.detector_version, excluded.severity, excluded.window_from, excluded.window_to,
           excluded.sentence, excluded.observed, excluded.expected_low, excluded.expected_high, excluded.score)
    returning a.xmax = 0 as created
), gone as (
    delete from tarry.anomaly a
    where a.detector = any (%(detectors)s::text[]) and a.acknowledged_at is null
      and a.window_from >= %(since)s::timestamptz and a.window_from < %(until)s::timestamptz
      and not exists (select from given g where g.fingerprint = a.fingerprint)
    returning 1
)
select (select count(*) from put where created) as raised, (select count(*) from put where not created) as changed,
    (select count(*) from silenced) as muted, (select count(*) from gone) as withdrawn
