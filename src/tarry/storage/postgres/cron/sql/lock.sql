-- The revisions of schedules that are to change together, locked until the transaction ends, in the order of their names.
select s.prefix, s.revision
from tarry.schedule s
where s.prefix = any (%(prefixes)s::text[])
order by s.prefix
for update
