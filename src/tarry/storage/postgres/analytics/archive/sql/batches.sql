-- The batches of a lake in these states, in the order of the chain. One statement, so that a compaction is seen either
-- with its parts replaced or not at all. `since`: from the first batch with events since then, and all after it, so that the
-- result is a contiguous part of the chain: a transaction that stayed open has old events in a new batch.
select
-- include: analytics/archive/_batch
from tarry.archive_batch
where lake = %(lake)s and state = any (%(states)s::text[]) and position > %(after)s::bigint
  and (%(since)s::timestamptz is null or position >= (
    select min(position) from tarry.archive_batch
    where lake = %(lake)s and state = any (%(states)s::text[]) and max_at >= %(since)s::timestamptz))
order by position, batch
