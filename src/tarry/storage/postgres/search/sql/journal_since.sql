-- The first day that has a journal partition.
select min(to_date(substr(c.relname, 7), 'YYYYMMDD'))::timestamp at time zone 'UTC' as since
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'tarry.event'::regclass and c.relname ~ '^event_[0-9]{8}$'
