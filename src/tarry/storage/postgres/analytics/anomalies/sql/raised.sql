-- How many anomalies began in each hour, for the limits of detectors.
select detector, queue_id, floor(extract(epoch from window_from) / 3600)::bigint as hour, count(*) as n
from tarry.anomaly
where detector = any (%(detectors)s::text[]) and window_from >= %(since)s::timestamptz
group by 1, 2, 3
