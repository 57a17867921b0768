-- The ticks of a prefix whose messages nobody was given yet. Relies on tick_once and message_key.
with ledger(name) as materialized (
    select coalesce(
        (select coalesce(s.ledger, s.prefix) from tarry.schedule s where s.prefix = %(prefix)s),
        (select l.name from tarry.ledger l where l.prefix = %(prefix)s order by l.installed_at desc, l.name limit 1))
)
select %(prefix)s::text, t.hash, t.tick, t.verdict, t.reason, t.decided_at, t.until, t.count, q.name, t.key, t.version, t.due_at,
    true, 0, t.prefix
from tarry.tick t
join tarry.message m on m.key = t.key and m.queue = t.queue and m.version = t.version and m.attempt = 0
join tarry.queue q on q.id = t.queue
where t.prefix = (select name from ledger) and t.until is null and t.key is not null and t.verdict <> 'withdrawn'
order by t.tick
