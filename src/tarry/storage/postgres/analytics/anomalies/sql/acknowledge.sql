-- Acknowledge anomalies. The first acknowledgement is kept; a later one can still mark them as false positives.
with changed as (
    update tarry.anomaly
    set acknowledged_at = coalesce(acknowledged_at, clock_timestamp()),
        acknowledged_by = case when acknowledged_at is null then %(by)s::text else acknowledged_by end,
        note = case when acknowledged_at is null then %(note)s::text else note end,
        is_false_positive = is_false_positive or %(is_false_positive)s::boolean
    where id = any (%(ids)s::bigint[])
      and (acknowledged_at is null or (%(is_false_positive)s::boolean and not is_false_positive))
    returning 1
)
select count(*) from changed
