-- The gate: enter ticks into the ledger, and say which were not there yet. Only those become messages. What is there stays,
-- except a tick whose message was taken back, a skipped one that is filled in by hand, and one that was skipped at an hour
-- that is yet to come, because the clock was set back since. A row that was inserted, and not changed, has no xmax.
-- Where the instant counts, one that made its message under another configuration is not let in: whoever changes a schedule
-- holds its row, so nobody else enters ticks of it meanwhile. Relies on tick_once.
insert into tarry.tick as t (prefix, hash, tick, until, count, verdict, reason, decided_at, due_at)
select d.prefix, d.hash, d.tick, d.until, d.count, d.verdict, d.reason, d.decided_at, d.due_at
from unnest(%(prefixes)s::text[], %(hashes)s::text[], %(ticks)s::timestamptz[], %(untils)s::timestamptz[],
    %(counts)s::int[], %(verdicts)s::text[], %(reasons)s::text[], %(decided)s::timestamptz[], %(due_ats)s::timestamptz[],
    %(by_instant)s::bool[])
    as d(prefix, hash, tick, until, count, verdict, reason, decided_at, due_at, by_instant)
where not d.by_instant or not exists (
    select from tarry.tick o
    where o.prefix = d.prefix and o.tick = d.tick and o.hash <> d.hash and o.until is null
      and o.verdict in ('planned', 'backfilled'))
order by d.prefix, d.tick, d.hash
on conflict (prefix, tick, hash) where until is null do update
set verdict = excluded.verdict, reason = excluded.reason, decided_at = excluded.decided_at, due_at = excluded.due_at,
    version = null, queue = null, key = null
where t.verdict = 'withdrawn'
   or (t.verdict = 'skipped' and (excluded.verdict = 'backfilled'
       or (t.reason <> 'by_hand' and t.decided_at > excluded.decided_at)))
returning t.prefix, t.hash, t.tick, t.xmax = 0
