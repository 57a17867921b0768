-- Delete the events of a key that every lake has, and the anomalies about it, and add the events to the pruned counts of their
-- days. Nothing happens while the key is live or dead: its state must stay derivable from its events. `left_over`: events that
-- a lake does not have yet.
with edge as materialized (
    select * from unnest(%(snapshots)s::text[], %(bases)s::text[], %(xids)s::bigint[], %(ids)s::bigint[])
        as u(snapshot, base, xid, id)
), held as materialized (
    select (select count(*) from tarry.message where queue = %(queue)s::int and key = %(key)s) as live,
        (select count(*) from tarry.dead_letter where queue = %(queue)s::int and key = %(key)s) as dead
), gone as (
    delete from tarry.event e
    where e.queue = %(queue)s::int and e.key = %(key)s and (select live + dead = 0 from held)
      and not exists (select from edge where not (
        pg_visible_in_snapshot(e.xid, coalesce(edge.base, edge.snapshot)::pg_snapshot)
        or (edge.base is not null and pg_visible_in_snapshot(e.xid, edge.snapshot::pg_snapshot)
            and (e.xid::text::bigint, e.id) <= (edge.xid, edge.id))))
    returning e.id, (e.at at time zone 'UTC')::date as day, tarry.event_hash(e) as hash
), booked as (
    update tarry.archive_day d
    set pruned_rows = d.pruned_rows + g.rows, pruned_checksum =
        mod(mod(d.pruned_checksum + g.checksum, 18446744073709551616) + 18446744073709551616, 18446744073709551616)
    from (select day, count(*) as rows, sum(hash) as checksum from gone group by day) g
    where d.day = g.day and d.lake <> ''
), anomalies as (
    delete from tarry.anomaly where queue_id = %(queue)s::int and key = %(key)s and (select live + dead = 0 from held)
    returning id
)
select live, dead, (select count(*) from gone) as events, (select count(*) from anomalies) as anomalies,
    (select count(*) from tarry.event where queue = %(queue)s::int and key = %(key)s) - (select count(*) from gone) as left_over
from held
