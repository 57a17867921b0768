-- Schedules with the state of their planning: one, or all of them by name.
select
    -- include: cron/_schedule
from tarry.schedule s
where %(prefix)s::text is null or s.prefix = %(prefix)s
order by s.prefix
