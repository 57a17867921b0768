-- Schedules with the state of their planning: one, or all of them by name.
select
    -- include: cron/_schedule
from tarry.schedule s
where %(name)s::text is null or s.name = %(name)s
order by s.name
