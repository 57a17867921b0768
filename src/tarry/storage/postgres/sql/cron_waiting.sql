-- The ticks of a prefix whose messages nobody was given yet. Relies on tick_once and message_key.
select t.prefix, t.hash, t.tick, t.verdict, t.reason, t.decided_at, t.until, t.count, q.name, t.key, t.version, t.due_at,
    true, 0
from tarry.tick t
join tarry.message m on m.key = t.key and m.queue = t.queue and m.version = t.version and m.attempt = 0
join tarry.queue q on q.id = t.queue
where t.prefix = %(prefix)s and t.until is null and t.key is not null and t.verdict <> 'withdrawn'
order by t.tick
