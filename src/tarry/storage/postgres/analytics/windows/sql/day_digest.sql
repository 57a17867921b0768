-- Digest of the journal of one day up to an edge, and the row count after it. Reads the day's partition and the
-- overflow.
select count(*) filter (where archived) as rows, coalesce(mod(mod(sum(hash) filter (where archived), 18446744073709551616)
    + 18446744073709551616, 18446744073709551616), 0) as checksum, count(*) filter (where not archived) as later_rows
from (
    select tarry.event_hash(e) as hash,
        pg_visible_in_snapshot(e.xid, coalesce(%(base)s, %(snapshot)s)::pg_snapshot)
        or (%(base)s::text is not null and pg_visible_in_snapshot(e.xid, %(snapshot)s::pg_snapshot)
            and (e.xid::text::bigint, e.id) <= (%(xid)s::bigint, %(id)s::bigint)) as archived
    from tarry.event e
    where e.at >= %(from_at)s::timestamptz and e.at < %(to_at)s::timestamptz
) day
