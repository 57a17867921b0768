-- The journal partitions, newest first after the overflow, from catalog and statistics.
select c.relname::text as name, to_date(substring(c.relname from '^event_([0-9]{8})$'), 'YYYYMMDD') as day,
    pg_total_relation_size(c.oid) as bytes, greatest(coalesce(s.n_live_tup, 0), c.reltuples::bigint, 0) as rows
from pg_inherits i join pg_class c on c.oid = i.inhrelid left join pg_stat_user_tables s on s.relid = c.oid
where i.inhparent = 'tarry.event'::regclass
order by day desc nulls first
limit 400
