-- Sizes and dead rows of Tarry's tables, largest first, from statistics: no table is read. The journal partitions are in
-- journal_sizes.
select c.relname::text as name, pg_table_size(c.oid) as bytes, pg_indexes_size(c.oid) as index_bytes,
    coalesce(s.n_live_tup, 0) as live, coalesce(s.n_dead_tup, 0) as dead, coalesce(s.n_mod_since_analyze, 0) as changed,
    current_setting('autovacuum')::boolean
        and not coalesce('autovacuum_enabled=false' = any (c.reloptions), false) as autovacuum,
    greatest(s.last_vacuum, s.last_autovacuum) as vacuumed_at, greatest(s.last_analyze, s.last_autoanalyze) as analyzed_at
from pg_class c left join pg_stat_user_tables s on s.relid = c.oid
where c.relnamespace = 'tarry'::regnamespace and c.relkind = 'r' and not c.relispartition
order by pg_table_size(c.oid) + pg_indexes_size(c.oid) desc, c.relname
limit 100
