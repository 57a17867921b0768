-- Whether this database can continue from an edge: same cluster, not behind the edge, nothing before it lost in a failover,
-- nothing pruned after it.
select system_identifier::text as system_id,
    pg_snapshot_xmax(%(snapshot)s::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) as is_behind,
    tarry.journal_is_lost(%(branch)s::bigint, %(lsn)s::pg_lsn) as is_lost,
    exists (select from tarry.archive_day where pruned_xid is not null
        and not pg_visible_in_snapshot(pruned_xid, coalesce(%(base)s, %(snapshot)s)::pg_snapshot)) as is_pruned
from pg_control_system()
