-- Can this database go on from an edge: is it the same cluster, is it as far as the edge, has nothing been pruned after it.
select system_identifier::text,
    pg_snapshot_xmax(%(snapshot)s::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()),
    exists (select from tarry.archive_day where pruned_xid is not null
        and not pg_visible_in_snapshot(pruned_xid, coalesce(%(base)s, %(snapshot)s)::pg_snapshot))
from pg_control_system()
