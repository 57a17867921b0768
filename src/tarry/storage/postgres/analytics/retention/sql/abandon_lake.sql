-- Forget a lake, so that the journal is pruned without it. Pruned days stay recorded, for readers with a gap.
with batches as (
    update tarry.archive_batch set state = 'abandoned' where lake = %(lake)s and state <> 'abandoned' returning rows
), days as (
    delete from tarry.archive_day where lake = %(lake)s returning day, pruned_rows, pruned_xid
), pruned as (
    insert into tarry.archive_day as d (lake, day, rows, pruned_rows, pruned_xid)
    select '', day, pruned_rows, pruned_rows, pruned_xid from days where pruned_rows > 0
    on conflict (lake, day) do update set rows = greatest(d.rows, excluded.rows),
        pruned_rows = greatest(d.pruned_rows, excluded.pruned_rows), pruned_xid = greatest(d.pruned_xid, excluded.pruned_xid)
), horizons as (
    delete from tarry.archive_horizon where lake = %(lake)s
), levels as (
    delete from tarry.queue_level where lake = %(lake)s
), rounds as (
    delete from tarry.lake_round where lake = %(lake)s
)
select count(*) from batches
