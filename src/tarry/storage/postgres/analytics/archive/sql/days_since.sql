-- The days with new rows from batches after a number. Compactions add no rows; the batches that they replaced did.
select coalesce(max(batch), %(number)s::bigint) as newest, array(
    select distinct day
    from tarry.archive_batch b cross join unnest(b.days) day
    where lake = %(lake)s and kind = 'archive' and state in ('durable', 'pruned', 'replaced') and batch > %(number)s) as days
from tarry.archive_batch
where lake = %(lake)s and kind = 'archive' and state in ('durable', 'pruned', 'replaced') and batch > %(number)s
