-- The ledger of one prefix, newest first: single ticks and runs of skipped ones that touch the span. Relies on tick_once
-- and tick_run. Of a schedule that is gone, the ledger that its prefix used last.
with ledger(name) as materialized (
    select coalesce(
        (select coalesce(s.ledger, s.prefix) from tarry.schedule s where s.prefix = %(prefix)s),
        (select l.name from tarry.ledger l where l.prefix = %(prefix)s order by l.installed_at desc, l.name limit 1))
)
select %(prefix)s::text, t.hash, t.tick, t.verdict, t.reason, t.decided_at, t.until, t.count, q.name, t.key, t.version, t.due_at,
    m.key is not null, coalesce(m.attempt, 0), t.prefix
from (
    (select * from tarry.tick
     where prefix = (select name from ledger) and until is null
       and tick between coalesce(%(since)s::timestamptz, '-infinity') and coalesce(%(until)s::timestamptz, 'infinity')
     order by prefix, tick desc limit %(limit)s::int)
    union all
    (select * from tarry.tick
     where prefix = (select name from ledger) and until is not null and until >= coalesce(%(since)s::timestamptz, '-infinity')
       and tick <= coalesce(%(until)s::timestamptz, 'infinity')
     order by prefix, tick desc limit %(limit)s::int)
) t
left join tarry.queue q on q.id = t.queue
left join tarry.message m on m.key = t.key and m.queue = t.queue and m.version = t.version and t.verdict <> 'withdrawn'
order by t.tick desc, t.until desc nulls last
limit %(limit)s::int
