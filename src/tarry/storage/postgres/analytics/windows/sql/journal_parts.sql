-- Journal partitions that can have rows between two instants, if given, with their blocks, without and with TOAST. A query on
-- one of them reads no other, and fails if it is gone.
select format('%%I.%%I', n.nspname, c.relname) as relation, pg_relation_size(c.oid) / 8192 as blocks,
    pg_table_size(c.oid) / 8192 as table_blocks, c.relname = 'event_overflow' as is_overflow
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
where i.inhparent = 'tarry.event'::regclass and pg_relation_size(c.oid) > 0 and (c.relname !~ '^event_[0-9]{8}$'
    or to_date(substr(c.relname, 7), 'YYYYMMDD') between
        coalesce((%(since)s::timestamptz at time zone 'UTC')::date, '-infinity')
        and coalesce((%(until)s::timestamptz at time zone 'UTC')::date, 'infinity'))
order by c.relname
