-- The server and this database. Sessions of other users are counted too: their rows are visible, their queries are not.
select d.datname::text as name, current_setting('server_version') as version, pg_database_size(d.oid) as bytes,
    pg_postmaster_start_time() as started_at,
    (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
    current_setting('max_connections')::int as most_connections, pg_notification_queue_usage() as notify_share,
    age(d.datfrozenxid) as frozen_age
from pg_database d where d.datname = current_database()
