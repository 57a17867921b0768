-- The ticks of a schedule whose messages were never leased. Relies on tick_once and message_key.
with
-- include: cron/_ledger
select
    -- include: cron/_tick
    , true as live
from tarry.tick t
join tarry.message m on m.key = t.key and m.queue = t.queue and m.version = t.version and m.attempt = 0
join tarry.queue q on q.id = t.queue
where t.ledger = (select name from ledger) and t.until is null and t.key is not null and t.verdict <> 'withdrawn'
order by t.tick
