-- One schedule, or all by name.
select
    -- include: cron/_schedule
from tarry.schedule s
where %(name)s::text is null or s.name = %(name)s
order by s.name
