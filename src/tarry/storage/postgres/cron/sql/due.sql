-- Schedules to be planned now, the longest waiting first: their wake time has passed, or they were last changed at a time in
-- the future, because the clock was set back. Schedules with computed payloads only if they are `owned`.
select
    -- include: cron/_schedule
from (
    (select * from tarry.schedule
     where wake_at <= coalesce(%(now)s::timestamptz, statement_timestamp())
       and (payload is not null or name = any (%(owned)s::text[]))
     order by wake_at limit %(limit)s::int)
    union
    (select * from tarry.schedule
     where decided_at > coalesce(%(now)s::timestamptz, statement_timestamp()) and wake_at is not null
       and (payload is not null or name = any (%(owned)s::text[]))
     order by decided_at limit %(limit)s::int)
) s
order by s.wake_at, s.name
limit %(limit)s::int
