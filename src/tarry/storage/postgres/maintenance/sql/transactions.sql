-- Open transactions, oldest first. Vacuum cannot remove rows that died after the snapshot of one of them.
-- Queries of other users are hidden from an ordinary role; their sessions are not.
select * from (
    select pid, coalesce(nullif(application_name, ''), 'no name') as session, coalesce(usename::text, '') as user,
        coalesce(state, '') as state, clock_timestamp() - xact_start as age_for, backend_xmin is not null as prevents_vacuum
    from pg_stat_activity
    where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
      and backend_type <> 'autovacuum worker'
    union all
    select 0, format('prepared transaction %%s', gid), owner::text, 'prepared', clock_timestamp() - prepared, true
    from pg_prepared_xacts where database = current_database()
) open
order by age_for desc limit 20
