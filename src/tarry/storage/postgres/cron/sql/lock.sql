-- Lock schedules that change together until the transaction ends, in name order, and return their revisions.
select s.name, s.revision
from tarry.schedule s
where s.name = any (%(names)s::text[])
order by s.name
for update
