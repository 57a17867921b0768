-- Digest of the journal in a window, by day. Uses the index event_find for the range of transactions.
select (e.at at time zone 'UTC')::date as day, count(*) as rows, mod(mod(sum(tarry.event_hash(e)), 18446744073709551616)
    + 18446744073709551616, 18446744073709551616) as checksum
from tarry.event e
where
-- include: analytics/windows/_in_window
group by 1
