-- Events committed between a snapshot (`since`) and `until`, or now, in transaction order. A statement has one snapshot, so these
-- are exactly the events between the two; a late commit is in a later window, whatever its id. Counting stops at `most`: a reader
-- that is further behind gets a gap instead of scanning the journal with every page. Pruned days are checked in the same
-- snapshot. Visible events may not be on disk: see journal/bound. `next_xid` and `running` repeat the condition on `since` in a
-- form that event_find supports: otherwise one long transaction would make every read scan the journal since its start. Relies on
-- event_find, after prefer_bitmap_scans.
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
    select count(*) > %(most)s::bigint as is_too_far from found
)
select edge.until::text,
    (select system_identifier::text || '.' || d.oid::text
        from pg_control_system() cross join pg_database d where d.datname = current_database()) as journal,
    case when pg_snapshot_xmax(%(known)s::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) then 'unknown'
        when exists (select from tarry.archive_day where pruned_xid is not null
            and not pg_visible_in_snapshot(pruned_xid, edge.since)) then 'pruned'
        when counted.is_too_far then 'too_far' end as gap,
    tarry.journal_is_lost(%(branch)s::bigint, %(lsn)s::pg_lsn) as is_lost,
    pg_is_in_recovery() as is_standby,
    e.xid,
    -- include: journal/_event
from edge cross join counted
left join lateral (
    select * from found where not counted.is_too_far order by found.xid, found.id limit %(limit)s::int
) e on true
left join tarry.queue q on q.id = e.queue
order by e.xid, e.id
