-- The ledger of one schedule, newest first: single ticks, and runs of skipped ticks that overlap the span. Relies on tick_once
-- and tick_run.
with
-- include: cron/_ledger
select
    -- include: cron/_tick
    , m.key is not null as live
from (
    (select * from tarry.tick
     where ledger = (select name from ledger) and until is null
       and tick between coalesce(%(since)s::timestamptz, '-infinity') and coalesce(%(until)s::timestamptz, 'infinity')
     order by ledger, tick desc limit %(limit)s::int)
    union all
    (select * from tarry.tick
     where ledger = (select name from ledger) and until is not null and until >= coalesce(%(since)s::timestamptz, '-infinity')
       and tick <= coalesce(%(until)s::timestamptz, 'infinity')
     order by ledger, tick desc limit %(limit)s::int)
) t
left join tarry.queue q on q.id = t.queue
left join tarry.message m on m.key = t.key and m.queue = t.queue and m.version = t.version and t.verdict <> 'withdrawn'
order by t.tick desc, t.until desc nulls last
limit %(limit)s::int
