-- Complete a compaction, which takes the place of its parts. The day accounts stay: the rows are the same.
update tarry.archive_batch
set state = %(state)s, durable_at = clock_timestamp(), files = %(files)s, rows = %(rows)s, checksum = %(checksum)s,
    days = %(days)s::date[], min_at = %(min_at)s::timestamptz, max_at = %(max_at)s::timestamptz
where batch = %(batch)s and state = 'planned'
returning
-- include: analytics/archive/_batch
