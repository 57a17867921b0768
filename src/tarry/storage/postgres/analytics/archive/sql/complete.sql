-- Move a batch from planned to durable and update the day accounts. Returns no row if another run has taken over.
with batch as (
    update tarry.archive_batch
    set state = 'durable', durable_at = clock_timestamp(), files = %(files)s, rows = %(rows)s, checksum = %(checksum)s,
        days = %(days)s::date[], min_at = %(min_at)s::timestamptz, max_at = %(max_at)s::timestamptz
    where batch = %(batch)s and state = 'planned'
    returning *
), account as (
    insert into tarry.archive_day as d (lake, day, rows, checksum)
    select batch.lake, u.day, u.rows, u.checksum
    from batch cross join unnest(%(days)s::date[], %(day_rows)s::bigint[], %(day_checksums)s::numeric[])
        as u(day, rows, checksum)
    on conflict (lake, day) do update
    set rows = d.rows + excluded.rows, checksum = mod(d.checksum + excluded.checksum, 18446744073709551616)
)
select
-- include: analytics/archive/_batch
from batch
