-- What holds vacuum back here: rows of the hot table that are dead and still there, and the oldest snapshot that may still
-- see them, with who holds it. Other users' queries are hidden from an ordinary role; that they are there is not.
select coalesce(s.n_dead_tup, 0), coalesce(s.n_live_tup, 0), holder.who, holder.age
from (select 1) one
left join pg_stat_user_tables s on s.relid = 'tarry.message'::regclass
left join lateral (
    select * from (
        select format('session %%s (%%s, %%s)', pid, coalesce(nullif(application_name, ''), 'no name'), state) as who,
            clock_timestamp() - xact_start as age
        from pg_stat_activity
        where datname = current_database() and backend_xmin is not null and xact_start is not null
          and pid <> pg_backend_pid() and backend_type <> 'autovacuum worker'
        union all
        select format('prepared transaction %%s', gid), clock_timestamp() - prepared
        from pg_prepared_xacts where database = current_database()
    ) held
    order by age desc limit 1
) holder on true
