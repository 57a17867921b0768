-- The time until a schedule must be planned. Relies on schedule_wake.
select min(w.wake_at) - coalesce(%(now)s::timestamptz, clock_timestamp()) as wait_for
from (
    select wake_at from tarry.schedule
    where wake_at is not null and (payload is not null or name = any (%(owned)s::text[]))
    order by wake_at limit 1
) w
