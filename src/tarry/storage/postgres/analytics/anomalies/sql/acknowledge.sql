-- Acknowledge anomalies. The first acknowledgement is kept.
with changed as (
    update tarry.anomaly
    set acknowledged_at = clock_timestamp(), acknowledged_by = %(by)s::text, note = %(note)s::text
    where id = any (%(ids)s::bigint[]) and acknowledged_at is null
    returning 1
)
select count(*) from changed
