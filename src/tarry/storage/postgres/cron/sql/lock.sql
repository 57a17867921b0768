-- Where schedules that are to change together stand, held until the transaction ends, in the order of their prefixes.
select s.prefix, s.revision
from tarry.schedule s
where s.prefix = any (%(prefixes)s::text[])
order by s.prefix
for update
