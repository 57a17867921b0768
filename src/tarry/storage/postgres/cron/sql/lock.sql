-- The revisions of schedules that are to change together, locked until the transaction ends, in the order of their names.
select s.name, s.revision
from tarry.schedule s
where s.name = any (%(names)s::text[])
order by s.name
for update
