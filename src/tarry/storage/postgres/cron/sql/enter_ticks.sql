-- Enter ticks into the ledger, and return which were new. Only these become messages. Existing entries stay, except a tick whose
-- message was withdrawn, a skipped one that is backfilled, and one that was skipped at a time in the future, because the clock
-- was set back since. An inserted row has no xmax, an updated one has. Ticks that count by instant are refused if they fired
-- under another configuration: a schedule change locks the row of the schedule, so no other transaction enters its ticks at the
-- same time. Relies on tick_once.
insert into tarry.tick as t (ledger, hash, tick, until, count, verdict, reason, decided_at, due_at)
select d.ledger, d.hash, d.tick, d.until, d.count, d.verdict, d.reason, d.decided_at, d.due_at
from unnest(%(ledgers)s::text[], %(hashes)s::text[], %(ticks)s::timestamptz[], %(untils)s::timestamptz[],
    %(counts)s::int[], %(verdicts)s::text[], %(reasons)s::text[], %(decided)s::timestamptz[], %(due_ats)s::timestamptz[],
    %(by_instant)s::bool[])
    as d(ledger, hash, tick, until, count, verdict, reason, decided_at, due_at, by_instant)
where not d.by_instant or not exists (
    select from tarry.tick o
    where o.ledger = d.ledger and o.tick = d.tick and o.hash <> d.hash and o.until is null
      and o.verdict in ('planned', 'backfilled'))
order by d.ledger, d.tick, d.hash
on conflict (ledger, tick, hash) where until is null do update
set verdict = excluded.verdict, reason = excluded.reason, decided_at = excluded.decided_at, due_at = excluded.due_at,
    version = null, queue = null, key = null
where t.verdict = 'withdrawn'
   or (t.verdict = 'skipped' and (excluded.verdict = 'backfilled'
       or (t.reason <> 'by_hand' and t.decided_at > excluded.decided_at)))
returning t.ledger, t.hash, t.tick, t.xmax = 0 as is_new
