-- Vacuum health: dead rows of the message table, and the oldest snapshot that may still see them, with its session.
-- Queries of other users are hidden from an ordinary role; their sessions are not.
select coalesce(s.n_dead_tup, 0) as dead, coalesce(s.n_live_tup, 0) as live, holder.session, holder.age
from (select 1) one
left join pg_stat_user_tables s on s.relid = 'tarry.message'::regclass
left join lateral (
    select * from (
        select format('session %%s (%%s, %%s)', pid, coalesce(nullif(application_name, ''), 'no name'), state) as session,
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
