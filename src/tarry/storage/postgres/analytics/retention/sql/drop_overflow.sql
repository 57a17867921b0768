-- Delete some rows of a day without a partition and add them to the pruned counts in the same transaction. Deletes only
-- rows that every lake has: a row that committed a moment ago stays.
with edge as materialized (
    select * from unnest(%(snapshots)s::text[], %(bases)s::text[], %(xids)s::bigint[], %(ids)s::bigint[])
        as u(snapshot, base, xid, id)
), gone as (
    delete from tarry.event e
    where e.tableoid = 'tarry.event_overflow'::regclass
      and e.ctid = any (array(
        select o.ctid from tarry.event_overflow o
        where o.at >= %(from_at)s::timestamptz and o.at < %(to_at)s::timestamptz
          and not exists (select from edge where not (
            pg_visible_in_snapshot(o.xid, coalesce(edge.base, edge.snapshot)::pg_snapshot)
            or (edge.base is not null and pg_visible_in_snapshot(o.xid, edge.snapshot::pg_snapshot)
                and (o.xid::text::bigint, o.id) <= (edge.xid, edge.id))))
        limit %(limit)s::int))
    returning e.xid, tarry.event_hash(e) as hash
), booked as (
    update tarry.archive_day
    set pruned_rows = pruned_rows + (select count(*) from gone),
        pruned_checksum = mod(mod(pruned_checksum + (select coalesce(sum(hash), 0) from gone), 18446744073709551616)
            + 18446744073709551616, 18446744073709551616),
        pruned_xid = greatest(pruned_xid, (select max(xid) from gone))
    where day = %(day)s::date and lake <> '' and exists (select from gone)
), without_lake as (
    insert into tarry.archive_day as d (lake, day, rows, pruned_rows, pruned_xid)
    select '', %(day)s::date, count(*), count(*), max(xid) from gone
    where not exists (select from tarry.archive_day where day = %(day)s::date and lake <> '')
    having count(*) > 0
    on conflict (lake, day) do update set rows = d.rows + excluded.rows, pruned_rows = d.pruned_rows + excluded.pruned_rows,
        pruned_xid = greatest(d.pruned_xid, excluded.pruned_xid)
)
select count(*) from gone
