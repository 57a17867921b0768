-- The number of journal events of a day, and the lakes that have archived other events of that day.
with day as materialized (
    select count(*) as rows, coalesce(mod(mod(sum(tarry.event_hash(e)), 18446744073709551616) + 18446744073709551616,
        18446744073709551616), 0) as checksum
    from tarry.event e where e.at >= %(from_at)s::timestamptz and e.at < %(to_at)s::timestamptz
)
select day.rows, array(
    select distinct b.lake from tarry.archive_batch b
    left join tarry.archive_day d on d.lake = b.lake and d.day = %(day)s::date
    where b.state <> 'abandoned' and (coalesce(d.rows - d.pruned_rows, 0), coalesce(mod(mod(d.checksum - d.pruned_checksum,
        18446744073709551616) + 18446744073709551616, 18446744073709551616), 0)) <> (day.rows, day.checksum)
    order by 1
) as lakes
from day
