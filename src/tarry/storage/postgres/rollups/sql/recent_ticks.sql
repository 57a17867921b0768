-- The last ledger entries of several schedules, newest first: single ticks and runs of skipped ticks. Relies on tick_once and
-- tick_run.
select s.name, t.hash, t.tick, t.verdict, t.reason, t.decided_at, t.until, t.count, q.name as queue, t.key, t.version, t.due_at,
    t.ledger, m.key is not null as live
from tarry.schedule s cross join lateral (
    (select * from tarry.tick
     where ledger = coalesce(s.ledger, s.name) and until is null and tick <= %(until)s::timestamptz
     order by ledger, tick desc limit %(limit)s::int)
    union all
    (select * from tarry.tick
     where ledger = coalesce(s.ledger, s.name) and until is not null and tick <= %(until)s::timestamptz
     order by ledger, tick desc limit %(limit)s::int)
    order by tick desc, until desc nulls last
    limit %(limit)s::int
) t
left join tarry.queue q on q.id = t.queue
left join tarry.message m on m.key = t.key and m.queue = t.queue and m.version = t.version and t.verdict <> 'withdrawn'
where s.name = any (%(schedules)s::text[])
order by s.name, t.tick desc, t.until desc nulls last
