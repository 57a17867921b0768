-- The days before today that have a journal partition (true) or only rows in the overflow (false).
select day, bool_or(is_partition) as is_partition from (
select to_date(substr(c.relname, 7), 'YYYYMMDD') as day, true as is_partition
from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'tarry.event'::regclass and c.relname ~ '^event_[0-9]{8}$'
  and to_date(substr(c.relname, 7), 'YYYYMMDD') < (clock_timestamp() at time zone 'UTC')::date
union
select distinct (at at time zone 'UTC')::date, false
from tarry.event_overflow
where at < (clock_timestamp() at time zone 'UTC')::date::timestamp at time zone 'UTC'
) days
group by day order by day
