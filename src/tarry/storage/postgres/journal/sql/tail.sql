-- What was committed after an edge (`since`), in the order of transactions: up to `until`, or up to now. A statement has one
-- snapshot, so this is exactly what lies between the two; what commits late lies in a later window, whatever its id.
-- Counting stops at `most`: whoever is further behind is told so, instead of walking the journal again with every page.
-- What was pruned is asked in the same snapshot. What is seen here may not be on disk: see journal_edge.
-- `next_xid` and `running` say once more what lies after `since`, in words that event_find understands: else one transaction
-- that is open for long would make every look walk the journal since it began.
-- Relies on event_find, after by_bitmaps.
with edge as materialized (
    select %(since)s::pg_snapshot as since, coalesce(%(until)s::pg_snapshot, pg_current_snapshot()) as until
), found as materialized (
    select e.xid::text::bigint as xid, e.id, e.kind, e.at, e.queue, e.key, e.version, e.attempt, e.priority, e.due_at,
        e.leased_at, e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail
    from edge cross join tarry.event e
    where edge.since::text <> edge.until::text
      and (e.xid::text::bigint >= %(next_xid)s::bigint or e.xid::text::bigint = any(%(running)s::bigint[]))
      and not pg_visible_in_snapshot(e.xid, edge.since)
      and pg_visible_in_snapshot(e.xid, edge.until)
      and (e.xid::text::bigint, e.id) > (%(after_xid)s::bigint, %(after_id)s::bigint)
    limit %(most)s::bigint + 1
), counted as materialized (
    select count(*) > %(most)s::bigint as too_far from found
)
select edge.until::text,
    (select system_identifier::text || '.' || d.oid::text
        from pg_control_system() cross join pg_database d where d.datname = current_database()),
    pg_snapshot_xmax(%(known)s::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()),
    exists (select from tarry.archive_day where pruned_xid is not null
        and not pg_visible_in_snapshot(pruned_xid, edge.since)),
    counted.too_far,
    tarry.journal_is_lost(%(branch)s::bigint, %(lsn)s::pg_lsn),
    pg_is_in_recovery(),
    f.xid, f.id, f.kind::text, f.at, q.name, f.key, f.version, f.attempt, f.priority, f.due_at, f.leased_at,
    f.lease_until, f.consumer, f.size, f.payload_hash, f.error, f.detail
from edge cross join counted
left join lateral (
    select * from found where not counted.too_far order by found.xid, found.id limit %(limit)s::int
) f on true
left join tarry.queue q on q.id = f.queue
order by f.xid, f.id
